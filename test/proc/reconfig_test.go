package proc

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// line() returns the text with which a ZooKeeper client names a server that must join.
func line(s *cluster.Server, role string) string {
	_, port, _ := net.SplitHostPort(s.Election)
	return fmt.Sprintf("server.%d=%s:%s:%s;%s", s.ID, s.Peer, port, role, s.Client)
}

func TestReconfigIsOffByDefault(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	c := dialZK(t, "super:"+password, e.Servers[0])
	expect.Is(t, expect.Err(c.IncrementalReconfig(nil, []string{"3"}, -1)), zk.ErrReconfigDisabled)
}

func TestReconfigNeedsTheRightToWriteTheConfiguration(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0, "--reconfig")
	ann := dialZK(t, "ann:x", e.Servers[0])
	expect.Is(t, expect.Err(ann.IncrementalReconfig(nil, []string{"3"}, -1)), zk.ErrNoAuth, "ann")
	super := dialZK(t, "super:"+password, e.Servers[1])
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 3 { // clients without the right ask all the time, and must not disturb a client that has it
		bob := dialZK(t, "bob:x", e.Servers[1])
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := bob.IncrementalReconfig(nil, []string{"3"}, -1); !errors.Is(err, zk.ErrNoAuth) {
						t.Errorf("bob: %v", err)
						return
					}
				}
			}
		})
	}
	for range 5 {
		expect.OK(t, expect.Err(super.IncrementalReconfig([]string{""}, nil, -1)), "super among others")
	}
	close(stop)
	others.Wait()
	acl := append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermWrite, "ann", "x")...)
	must.Get(super.SetACL("/zookeeper/config", acl, -1))(t)
	must.Get(ann.Sync("/"))(t)
	expect.OK(t, expect.Err(ann.IncrementalReconfig(nil, []string{"3"}, -1)), "ann with the right")
}

func TestReconfigAddsAndRemoves(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 2, "--reconfig")
	fourth, fifth := e.Servers[3], e.Servers[4]
	// A client asks a follower for every kind of change, and the leader makes it.
	leader := e.WaitLeader()
	at := e.others(leader)[0]
	c := dialZK(t, "super:"+password, at)
	version := func() int64 {
		t.Helper()
		b, _ := must.Get2(c.Get("/zookeeper/config"))(t)
		_, v := configRoles(string(b))
		n := must.Get(strconv.ParseInt(v, 16, 64))(t)
		return n
	}
	before := version()

	// The server refuses each of these requests and changes nothing.
	for _, tc := range []struct {
		what             string
		joining, leaving []string
		version          int64
		want             string
	}{
		{"another version", nil, []string{"3"}, 77, zk.ErrBadVersion.Error()},
		{"nonsense", []string{"garbage"}, nil, -1, zk.ErrBadArguments.Error()},
		{"all leave", nil, []string{"1", "2", "3"}, -1, zk.ErrBadArguments.Error()},
		{"too many who are not there", []string{line(fourth, "participant"), line(fifth, "participant"),
			"server.6=127.0.0.1:9:10;11"}, nil, -1, "-13"},
	} {
		_, err := c.IncrementalReconfig(tc.joining, tc.leaving, tc.version)
		if expect.Fails(t, err, "%s", tc.what) {
			expect.Has(t, err.Error(), tc.want, "%s: error", tc.what)
		}
	}
	got := e.roles(e.Servers[0])
	must.Equal(t, got, "1 voter, 2 voter, 3 voter", "after refusals")
	must.Equal(t, version(), before, "after refusals: version")

	// A server that waits to join becomes a member. The watch fires before the answer.
	must.OK(t, fourth.Spawn())
	must.Await(t, "the fourth waits", 30*time.Second, func() bool {
		_, err := net.Dial("tcp", fourth.Peer)
		return err == nil
	})
	_, _, changed, err := c.GetW("/zookeeper/config")
	must.OK(t, err)
	stat := must.Get(c.IncrementalReconfig([]string{line(fourth, "participant")}, nil, before))(t)
	select {
	case ev := <-changed:
		expect.Equal(t, ev.Type, zk.EventNodeDataChanged, "event %v", ev)
	default:
		t.Error("the answer came before the event")
	}
	expect.That(t, version() > before, "version %x, was %x", version(), before)
	_, node, err := c.Get("/zookeeper/config")
	must.OK(t, err)
	expect.Equal(t, stat.Mzxid, node.Mzxid, "mzxid of the answer")
	must.OK(t, fourth.WaitReady())
	for _, s := range e.Servers[:4] {
		must.Await(t, "every server shows four voters", 30*time.Second, func() bool {
			roles, v := shownConfig(t, s)
			return roles == "1 voter, 2 voter, 3 voter, 4 voter" && v == strconv.FormatInt(version(), 16)
		})
	}

	// A server joins without a vote, and gets a vote later.
	must.OK(t, fifth.Spawn())
	must.Await(t, "the fifth waits", 30*time.Second, func() bool {
		_, err := net.Dial("tcp", fifth.Peer)
		return err == nil
	})
	must.Get(c.IncrementalReconfig([]string{line(fifth, "observer")}, nil, -1))(t)
	must.Equal(t, e.roles(at), "1 voter, 2 voter, 3 voter, 4 voter, 5 non-voter")
	must.OK(t, fifth.WaitReady())
	must.Get(c.IncrementalReconfig([]string{line(fifth, "participant")}, nil, -1))(t)

	// The leader leaves; the request lists all servers that stay.
	var stay []string
	for _, s := range e.Servers {
		if s != leader {
			stay = append(stay, line(s, "participant"))
		}
	}
	must.Get(c.Reconfig(stay, -1))(t)
	must.Await(t, "the old leader no longer serves", 30*time.Second, func() bool { return leader.Mode() == "" })
	must.Await(t, "four are left", 30*time.Second, func() bool {
		return len(e.roles(at)) == len("1 voter, 2 voter, 3 voter, 4 voter")
	})

	// A client that removes its own server is answered by that server.
	expect.OK(t, expect.Err(c.IncrementalReconfig(nil, []string{strconv.Itoa(at.ID)}, -1)),
		"removing the server of the connection")
	must.Await(t, "it no longer serves", 30*time.Second, func() bool { return at.Mode() == "" })
	rest := e.others(leader)
	must.Await(t, "three are left", 30*time.Second, func() bool {
		return len(e.roles(rest[len(rest)-1])) == len("1 voter, 2 voter, 3 voter")
	})
}

// A member of the new configuration may be down if a majority runs. Its line is published as the operator
// wrote it. Each reconfig makes one version.
func TestReconfigOfThoseWhoDoNotRun(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0, "--reconfig")
	c := dialZK(t, "super:"+password, e.others(e.WaitLeader())[0])
	ahead := int64(0)
	read := func() (text string, version int64) {
		t.Helper()
		b, stat, err := c.Get("/zookeeper/config")
		must.OK(t, err)
		text, v, _ := strings.Cut(string(b), "\nversion=")
		version, err = strconv.ParseInt(v, 16, 64)
		must.OK(t, err, "version %s", v)
		if ahead == 0 { // set once: each change adds one to both numbers, so their difference never changes
			ahead = stat.Mzxid - version
		}
		must.Equal(t, stat.Mzxid-version, ahead, "mzxid less version")
		return text, version
	}
	first, version := read()
	expect.That(t, version >= 1<<32, "the first version is %x", version)
	observer, voter := "server.100=0.0.0.0:5:6:observer;0.0.0.0:7",
		"server.4=localhost:9:10:participant;localhost:11"
	for _, step := range []struct {
		joining, leaving []string
		want             []string // the lines after those of the first three servers
	}{
		{[]string{observer}, nil, []string{observer}},
		{[]string{"server.0=nowhere.invalid:1:2;3"}, nil, []string{
			"server.0=nowhere.invalid:1:2:participant;0.0.0.0:3", observer}},
		{[]string{voter}, []string{"0"}, []string{voter, observer}},
		{[]string{"server.100=0.0.0.0:5:8:observer;0.0.0.0:7"}, nil, []string{
			voter, "server.100=0.0.0.0:5:8:observer;0.0.0.0:7"}},
		{[]string{"server.4=[::1]:9:10:observer;12"}, nil, []string{"server.4=[::1]:9:10:observer;0.0.0.0:12",
			"server.100=0.0.0.0:5:8:observer;0.0.0.0:7"}},
		{[]string{""}, nil, []string{"server.4=[::1]:9:10:observer;0.0.0.0:12",
			"server.100=0.0.0.0:5:8:observer;0.0.0.0:7"}},
		{[]string{""}, []string{"4", "100"}, nil},
	} {
		_, _, changed, err := c.GetW("/zookeeper/config")
		must.OK(t, err)
		stat, err := c.IncrementalReconfig(step.joining, step.leaving, version)
		must.OK(t, err, "join %q, leave %q", step.joining, step.leaving)
		<-changed
		text, now := read()
		want := append(strings.Split(first, "\n"), step.want...)
		if len(step.want) > 0 && strings.HasPrefix(step.want[0], "server.0=") {
			want = append(step.want[:1:1], append(strings.Split(first, "\n"), step.want[1:]...)...)
		}
		if text != strings.Join(want, "\n") {
			t.Errorf("join %q, leave %q:\n%s\nwant\n%s", step.joining, step.leaving, text, strings.Join(want, "\n"))
		}
		// Each step is one change of the members, so the version grows by one. Only in the first step it
		// grows by more, because a session was created since the version was read.
		if now != stat.Mzxid-ahead || now != version+1 && step.joining[0] != observer {
			t.Errorf("join %q, leave %q: version %x after %x, mzxid %x", step.joining, step.leaving, now, version,
				stat.Mzxid)
		}
		version = now
	}
	expect.OK(t, expect.Err(c.Create("/after", nil, 0, zk.WorldACL(zk.PermAll))))
}

// A single server refuses a reconfig, because it has no ensemble.
func TestReconfigOfASingleServer(t *testing.T) {
	t.Parallel()
	e := cluster.Run(t, cluster.Options{Dev: true, Flags: []string{"--reconfig", "--skip-acl"}})
	_, err := dialZK(t, "", e.Servers[0]).IncrementalReconfig(nil, []string{"3"}, -1)
	expect.Fails(t, err, "reconfig of a single server succeeded")
}
