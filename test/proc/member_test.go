package proc

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// others() returns the running servers except one.
func (e *ensemble) others(not *cluster.Server) (list []*cluster.Server) {
	for _, s := range e.Servers {
		if s != not && s.Running() {
			list = append(list, s)
		}
	}
	return list
}

func TestServerIsAddedPromotedAndRemoved(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	one, fourth := e.Servers[0], e.Servers[3]
	must.Equal(t, e.roles(one), "1 voter, 2 voter, 3 voter")
	must.OK(t, fourth.Spawn())
	e.must(one, "add", "--no-vote", "4", fourth.Peer)
	must.Equal(t, e.roles(one), "1 voter, 2 voter, 3 voter, 4 non-voter")
	must.OK(t, fourth.WaitReady())
	expect.Equal(t, fourth.Mode(), "observer", "the new server calls itself")
	c := dialZK(t, "", fourth)
	must.OK(t, expect.Err(c.Create("/by4", []byte("x"), 0, zk.WorldACL(zk.PermAll))),
		"a write through the server without a vote")
	e.must(fourth, "promote", "4")
	for _, s := range e.Servers {
		must.Await(t, "all see four voters", 30*time.Second, func() bool {
			return e.roles(s) == "1 voter, 2 voter, 3 voter, 4 voter"
		})
		must.Await(t, "all show them to clients", 30*time.Second, func() bool {
			roles, _ := shownConfig(t, s)
			return roles == "1 voter, 2 voter, 3 voter, 4 voter"
		})
	}

	// Remove a follower, then the leader. Each time the client of the removed server moves to another server
	// with its session, and the removed server serves no client.
	for range 2 {
		leader := e.WaitLeader()
		gone := leader
		if len(e.others(nil)) == 4 {
			gone = e.others(leader)[0]
		}
		rest := e.others(gone)
		c := dialZK(t, "", append([]*cluster.Server{gone}, rest...)...)
		id := c.SessionID()
		must.Get(c.Create("/of"+gone.Peer, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
		e.must(rest[0], "remove", string(rune('0'+gone.ID)))
		must.Await(t, "the removed server stops serving", 30*time.Second, func() bool { return gone.Mode() == "" })
		must.Await(t, "the client is served elsewhere", 30*time.Second, func() bool {
			_, stat, err := c.Get("/of" + gone.Peer)
			return err == nil && stat.EphemeralOwner == id && c.SessionID() == id && c.Server() != gone.Client
		})
		for _, s := range rest {
			must.Await(t, "the others know", 30*time.Second, func() bool {
				return !strings.Contains(e.roles(s), string(rune('0'+gone.ID))+" ")
			})
		}
		out, errs, _ := e.member(gone, "list")
		expect.That(t, out != "", "list at the removed server: %s", errs)
		gone.Stop()
	}
	expect.Equal(t, len(strings.Split(e.roles(e.others(nil)[0]), ",")), 2, "members are left")
}

// A server that lost its disk gets its id back when it was removed and added again. Until then it waits, and
// says what to do.
func TestServerWithALostDiskComesBack(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	one, lost := e.Servers[0], e.Servers[2]
	c := dialZK(t, "", one)
	must.Get(c.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll)))(t)
	lost.Kill()
	must.OK(t, os.RemoveAll(lost.Data()))
	must.OK(t, lost.Spawn())
	must.Await(t, "it says what to do", 30*time.Second, func() bool {
		return strings.Contains(lost.Log(1<<30), "zlock member replace 3")
	})
	must.Equal(t, lost.Mode(), "", "it serves as")
	_, errs, code := e.member(one, "replace", "3")
	must.Equal(t, code, 0, "exit code; it says %s", errs)
	must.Has(t, errs, "there are 2 voters instead of 3", "standard error")
	must.Has(t, errs, "server 3 votes", "standard error")
	must.OK(t, lost.WaitReady())
	// The vote of the returned server counts: the cluster survives the loss of another server.
	e.others(lost)[0].Kill()
	must.Await(t, "two of three serve", 30*time.Second, func() bool { return lost.Mode() != "" })
	_, _, err := dialZK(t, "", lost).Get("/kept")
	expect.OK(t, err)
}

func TestMemberErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	one := e.Servers[0]
	wrong := filepath.Join(t.TempDir(), "wrong")
	must.OK(t, os.WriteFile(wrong, []byte("digest:super:"+password+"er\n"), 0o600))
	for _, tc := range []struct {
		args []string
		errs string
		code int
	}{
		{[]string{"add", "4", "nowhere"}, `peer address "nowhere" is not HOST:PORT`, 1},
		{[]string{"add", "2", "127.0.0.1:1"}, "server 2 is a member already, at " + e.Servers[1].Peer, 1},
		{[]string{"promote", "9"}, "server 9 is not a member; add it first", 1},
		{[]string{"remove", "9"}, "server 9 is not a member", 1},
		{[]string{"add", "400", "127.0.0.1:1"}, "server id 400 is not a number from 1 to 254", 1},
		{[]string{"remove", "two"}, "the ID of a member must be a number", 125},
		{[]string{"--auth-file", "/nonexistent", "remove", "2"}, "--auth-file: open /nonexistent", 125},
		{[]string{"--auth-file", wrong, "remove", "2"},
			"the user and password of --auth-file are not those of the servers' --super-digest", 1},
		{[]string{"--auth-file", "", "remove", "2"},
			"this needs the super user's password: give a line digest:super:PASSWORD in --auth-file", 1},
		{[]string{"--admin-addr", "127.0.0.1:1", "list"},
			"no answer from the admin listener at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused",
			120},
	} {
		_, errs, code := e.member(one, tc.args...)
		expect.Equal(t, code, tc.code, "%v: exit code; it says %s", tc.args, errs)
		expect.That(t, strings.HasPrefix(errs, "zlock: member: "+tc.errs), "%v: exit code %d: %s", tc.args, code,
			errs)
	}
	_, errs, code := e.member(one, "-w", "0.5", "add", "4", "127.0.0.1:1")
	expect.Equal(t, code, 1, "add a server that is not there: exit code; it says %s", errs)
	expect.Has(t, errs, "server 4 does not answer at 127.0.0.1:1",
		"add a server that is not there: standard error")
	e.post(one, `{"op":"add","id":4,"addr":"127.0.0.1:1"}`)
	_, errs, code = e.member(one, "-w", "0.5", "promote", "4")
	expect.Equal(t, code, 1, "promote a server that is not there: exit code; it says %s", errs)
	expect.Has(t, errs, "server 4 is not ready", "promote a server that is not there: standard error")
	e.must(one, "remove", "4")

	// The servers refuse to remove a voter without which there would be no majority.
	leader := e.WaitLeader()
	rest := e.others(leader)
	rest[0].Kill()
	_, errs, code = e.member(leader, "remove", string(rune('0'+rest[1].ID)))
	expect.Equal(t, code, 1, "remove what the cluster needs: exit code; it says %s", errs)
	expect.Has(t, errs, "only 1 of the 2 voters follow and have the log",
		"remove what the cluster needs: standard error")
	expect.Equal(t, e.roles(leader), "1 voter, 2 voter, 3 voter")
	// Without a leader no change is possible.
	leader.Kill()
	must.Await(t, "no server leads", 30*time.Second, func() bool { return rest[1].Mode() == "" })
	_, errs, code = e.member(rest[1], "-w", "1", "add", "5", "127.0.0.1:1")
	expect.Equal(t, code, 1, "without a leader: exit code; it says %s", errs)
	expect.Has(t, errs, "there is no leader at the moment; try again", "without a leader: standard error")
}

// A single server has no members to change.
func TestMemberOfASingleServer(t *testing.T) {
	t.Parallel()
	e := cluster.Run(t, cluster.Options{Dev: true})
	s := &ensemble{e, t, ""}
	out, errs, code := s.run("member", "--admin-addr", e.Servers[0].Admin, "list", "-o", "plain")
	expect.Equal(t, out, "", "standard output")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
	expect.Equal(t, errs, "zlock: the server runs alone, or has not joined its cluster yet\n", "standard error")
	_, errs, code = s.run("member", "--admin-addr", e.Servers[0].Admin, "remove", "1")
	expect.Equal(t, code, 1, "exit code; it says %s", errs)
	expect.Has(t, errs, "start zlockd with --super-digest", "standard error")
}

// A server that is removed and added again need not be restarted in between:
// it opens a new stream of requests, and serves.
func TestServerAddedAgainWhileItRunsServes(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	one, three := e.Servers[0], e.Servers[2]
	e.must(one, "remove", "3")
	must.Await(t, "it no longer serves", 30*time.Second, func() bool { return three.Mode() == "" })
	e.must(one, "add", "3", three.Peer)
	e.must(one, "promote", "3")
	must.Await(t, "it serves again", 30*time.Second, func() bool { return three.Mode() != "" })
	must.Get(dialZK(t, "", three).Create("/again", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	must.Await(t, "its client address is told", 30*time.Second, func() bool {
		b, _, err := dialZK(t, "", one).Get("/zookeeper/config")
		return err == nil && len(b) > 0 && strings.Contains(string(b), three.Client)
	})
}

// A server that lost its disk asks the other servers whether it was a member. A removed member that still
// runs answers, too. Its answer must not prevent the server from joining.
func TestRemovedServerThatRunsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	one, two, three, four := e.Servers[0], e.Servers[1], e.Servers[2], e.Servers[3]
	must.OK(t, four.Spawn())
	e.must(three, "add", "4", four.Peer)
	e.must(three, "remove", "2")
	must.Await(t, "the removed server no longer serves", 30*time.Second, func() bool { return two.Mode() == "" })

	one.Kill()
	must.OK(t, os.RemoveAll(one.Data()))
	must.Await(t, "it can be removed", 30*time.Second, func() bool {
		_, _, code := e.member(three, "remove", "1")
		return code == 0
	})
	// The server does not run yet. `promote` must say so, and not only count missing log entries.
	e.post(three, `{"op":"add","id":1,"addr":"`+one.Peer+`"}`)
	_, errs, code := e.member(three, "-w", "1", "promote", "1")
	expect.Equal(t, code, 1, "promote a server that does not run: exit code; it says %s", errs)
	expect.Has(t, errs, "connection refused", "promote a server that does not run: standard error")
	must.OK(t, one.Spawn())
	e.must(three, "promote", "1")
	must.OK(t, one.WaitReady())
	expect.Equal(t, e.roles(one), "1 voter, 3 voter, 4 voter")

	// A server that was removed while it did not run learns of the removal when it comes back.
	one.Kill()
	must.Await(t, "it can be removed", 30*time.Second, func() bool {
		_, _, code := e.member(three, "remove", "1")
		return code == 0
	})
	must.OK(t, one.Spawn())
	must.Await(t, "it says that it was removed", 30*time.Second, func() bool {
		return strings.Contains(ready(one), "this server was removed from the cluster")
	})
}

// blocks are the shell examples below a heading of a document.
func blocks(t *testing.T, doc, heading string) (list []string) {
	t.Helper()
	b := must.Get(os.ReadFile(doc))(t)
	_, text, ok := strings.Cut(string(b), "\n## "+heading+"\n")
	must.That(t, ok, "%s has no heading %q", doc, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// The test follows the manual to the letter. It changes only addresses and directories, and uses no TLS on
// loopback.
func TestTheManualOfMembersCanBeFollowed(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	steps := blocks(t, "../../docs/operations.md", "Members")
	must.Equal(t, len(steps), 5,
		"%d examples; this test knows of 5: list, start, add, remove, a lost disk", len(steps))
	fourth, lost := e.Servers[3], e.Servers[2]
	var names []string
	for i, s := range e.Servers {
		ip := "10.0.0." + string(rune('1'+i))
		names = append(names, ip+":2888", s.Peer, ip+":2181", s.Client)
	}
	words := strings.NewReplacer(append(names, "/var/lib/zlockd", fourth.Data())...)
	tls := regexp.MustCompile(` --peer-tls-\w+ \S+`)
	dir := t.TempDir()
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", words.Replace(script))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cluster.Zlock(t))+":"+os.Getenv("PATH"), "ZLOCK_ADMIN="+
			e.Servers[0].Admin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	expect.Equal(t, strings.Count(sh(steps[0]), "\n"), 4, "the list")

	zlockd := must.Get(cluster.Binary())(t)
	command := words.Replace(tls.ReplaceAllString(strings.ReplaceAll(steps[1], "\\\n", " "), ""))
	fourth.Args = append([]string{zlockd}, strings.Fields(command)[1:]...)
	// The manual gives no admin address, because each server has a machine of its own there.
	fourth.Args = append(fourth.Args, "--admin-addr", fourth.Admin)
	must.OK(t, fourth.Spawn())
	must.Await(t, "the new server says what it waits for", 30*time.Second, func() bool {
		return strings.Contains(fourth.Log(1<<30), "zlock member add 4 "+fourth.Peer)
	})
	sh(steps[2])
	must.OK(t, fourth.WaitReady())
	expect.Equal(t, e.roles(fourth), "1 voter, 2 voter, 3 voter, 4 voter")

	second := e.Servers[1]
	sh(steps[3])
	must.Await(t, "the removed server no longer serves", 30*time.Second, func() bool {
		return second.Mode() == ""
	})
	must.Await(t, "it says why", 30*time.Second, func() bool {
		return strings.Contains(ready(second), "this server was removed from the cluster")
	})
	second.Stop()

	lost.Kill()
	must.OK(t, os.RemoveAll(lost.Data()))
	must.OK(t, lost.Spawn())
	must.Await(t, "the emptied server waits", 30*time.Second, func() bool {
		return strings.Contains(lost.Log(1<<30), "this directory is empty, so the server must not vote")
	})
	sh(steps[4])
	must.OK(t, lost.WaitReady())
	expect.Equal(t, e.roles(lost), "1 voter, 3 voter, 4 voter")
}

// ready() is what a server answers to /ready.
func ready(s *cluster.Server) string {
	resp, err := http.Get("http://" + s.Admin + "/ready")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
