package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// moveTo gives a stopped server another peer address, in its own flags only, as when an operator moves one
// machine.
func (e *ensemble) moveTo(s *cluster.Server) (was string) {
	e.t.Helper()
	ports := must.Get(cluster.FreePorts(1))(e.t)
	was = s.Peer
	for i := range s.Args {
		s.Args[i] = strings.ReplaceAll(s.Args[i], was, ports[0])
	}
	s.Peer = ports[0]
	return was
}

// addr returns the address that a server lists for a member.
func (e *ensemble) addr(at *cluster.Server, id int) string {
	e.t.Helper()
	for line := range strings.Lines(e.must(at, "list", "-o", "plain")) {
		if f := strings.Split(line, "\t"); f[0] == strconv.Itoa(id) {
			return f[1]
		}
	}
	return ""
}

// withoutAndWithTLS runs a test on three servers, and on three that speak TLS to each other.
func withoutAndWithTLS(t *testing.T, spare int, test func(*testing.T, *ensemble)) {
	t.Parallel()
	for name, flags := range map[string][]string{"plain": nil, "TLS": certificates(t, 3+spare)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startMembers(t, spare, flags...))
		})
	}
}

// A follower comes back at a new address, and then the leader does. The list of members and the clients get
// the address, a log mentions the move, and the vote of the moved server counts.
func TestServerComesBackAtANewAddress(t *testing.T) { withoutAndWithTLS(t, 0, comesBackElsewhere) }

func comesBackElsewhere(t *testing.T, e *ensemble) {
	for _, what := range []string{"follower", "leader"} {
		moved := e.WaitLeader()
		if what == "follower" {
			moved = e.others(moved)[0]
		}
		rest := e.others(moved)
		moved.Stop()
		must.Await(t, "the others serve", 30*time.Second, func() bool {
			return rest[0].Mode() != "" &&
				rest[1].Mode() != ""
		})
		was := e.moveTo(moved)
		must.OK(t, moved.Spawn())
		must.OK(t, moved.WaitReady())
		for _, s := range e.Servers {
			must.Await(t, "the list has the new address", 30*time.Second, func() bool {
				return e.addr(s, moved.ID) == moved.Peer
			})
		}
		b, _, err := dialZK(t, "", rest[0]).Get("/zookeeper/config")
		if expect.OK(t, err) {
			expect.Has(t, string(b), moved.Peer, "clients are told")
			expect.Lacks(t, string(b), was)
		}
		seen := false
		for _, s := range e.Servers {
			seen = seen || strings.Contains(s.Log(1<<30), "op=address") && strings.Contains(s.Log(1<<30), moved.Peer)
		}
		expect.That(t, seen, "no log mentions the move")
		// The vote of the moved server counts: after the loss of another server, the remaining two can write.
		rest[1].Kill()
		c := dialZK(t, "", moved)
		must.Await(t, "the two write", 30*time.Second, func() bool {
			_, err := c.Create("/moved-"+what, nil, 0, zk.WorldACL(zk.PermAll))
			return err == nil || err == zk.ErrNodeExists
		})
		must.OK(t, rest[1].Spawn())
		must.OK(t, rest[1].WaitReady())
	}
}

// The server that replaces a lost machine can have the same id and a new address.
func TestMachineIsReplaced(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 0)
	lost := e.others(e.WaitLeader())[0]
	rest := e.others(lost)
	_, errs, code := e.member(rest[0], "replace", strconv.Itoa(lost.ID))
	expect.Equal(t, code, 1, "a server that runs is replaced: exit code; it says %s", errs)
	expect.Has(t, errs, "there is nothing to replace", "a server that runs is replaced: standard error")
	lost.Kill()
	must.OK(t, os.RemoveAll(lost.Data()))
	e.moveTo(lost)
	must.OK(t, lost.Spawn())
	e.must(rest[0], "replace", strconv.Itoa(lost.ID), lost.Peer)
	must.OK(t, lost.WaitReady())
	expect.Equal(t, e.roles(lost), "1 voter, 2 voter, 3 voter")
	got := e.addr(rest[0], lost.ID)
	expect.Equal(t, got, lost.Peer, "it is at %s in the list", got)
}

// A running leader is replaced by a server on another machine, which starts with the leader's id on an empty
// directory. The leader itself makes the change, and then the new server has its vote.
func TestRunningLeaderIsReplaced(t *testing.T) { withoutAndWithTLS(t, 1, runningLeaderIsReplaced) }

func runningLeaderIsReplaced(t *testing.T, e *ensemble) {
	former, fresh := e.WaitLeader(), e.Servers[3]
	c := dialZK(t, "", e.others(former)...)
	must.Get(c.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll)))(t)
	id := strconv.Itoa(former.ID)
	fresh.ID = former.ID
	fresh.Set("--id", id)
	for i, a := range former.Args {
		switch a {
		case "--peers":
			fresh.Set(a, strings.Replace(former.Args[i+1], id+"="+former.Peer, id+"="+fresh.Peer, 1))
		case "--peer-tls-cert", "--peer-tls-key":
			fresh.Set(a, former.Args[i+1])
		}
	}
	must.OK(t, fresh.Spawn())
	fresh.AwaitLog("zlock member replace " + id)
	rest := e.others(former)[:2]
	must.Await(t, "it leads before the change", 30*time.Second, func() bool {
		if e.Leader() == former {
			return true
		}
		e.member(rest[0], "lead", id) // a busy machine may have elected another one
		return false
	})
	e.must(rest[0], "replace", id, fresh.Peer)
	must.OK(t, fresh.WaitReady())
	silent := 0 // how many looks at the former leader in a row found no answer: one can be late
	must.Await(t, "the former leader serves no client", 30*time.Second, func() bool {
		if silent++; former.Mode() != "" {
			silent = 0
		}
		return silent == 3
	})
	former.Kill()
	expect.Equal(t, e.roles(rest[0]), "1 voter, 2 voter, 3 voter")
	expect.Equal(t, e.addr(rest[0], former.ID), fresh.Peer)
	// The vote of the new server counts: without one of the others, it and the last one can write.
	rest[1].Kill()
	n := dialZK(t, "", fresh)
	must.Await(t, "the two write", 30*time.Second, func() bool {
		_, err := n.Set("/kept", []byte("y"), -1)
		return err == nil
	})
}

// started is a zlock member command that still runs.
type started struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs bytes.Buffer
}

func (e *ensemble) begin(at *cluster.Server, args ...string) *started {
	e.t.Helper()
	s := &started{t: e.t, cmd: exec.Command(cluster.Zlock(e.t),
		append([]string{"member", "--admin-addr", at.Admin, "--auth-file", e.auth}, args...)...)}
	s.cmd.Stderr = &s.errs
	must.OK(e.t, s.cmd.Start())
	e.t.Cleanup(func() { s.cmd.Process.Kill() })
	return s
}

// wait() waits until the command has succeeded.
func (s *started) wait() {
	s.t.Helper()
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatalf("zlock %v: %v\n%s", s.cmd.Args[1:], err, s.errs.String())
	}
}

// The test kills the leader while an operator adds, replaces, promotes and removes a server, and while
// leadership moves. Each command still completes.
func TestLeadersDieWhileMembersChange(t *testing.T) {
	withoutAndWithTLS(t, 2, func(t *testing.T, e *ensemble) { changesOverLeaderKills(t, e, 200) })
}

// Each command also completes in a large cluster: ZLOCKD_MEMBER_NODES says how many nodes its tree has, such
// as 1000000.
func TestMembersOfALargeCluster(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ZLOCKD_MEMBER_NODES"))
	if n == 0 {
		t.Skip("ZLOCKD_MEMBER_NODES says with how many nodes this runs")
	}
	changesOverLeaderKills(t, startMembers(t, 2), n)
}

func changesOverLeaderKills(t *testing.T, e *ensemble, nodes int) {
	one, two, three, four := e.Servers[0], e.Servers[1], e.Servers[2], e.Servers[3]
	fillMembers(t, nodes, one, two, three)
	// ask() returns a running server that does not lead. The test sends the commands to that server, so they
	// continue when the leader is killed.
	ask := func(not ...*cluster.Server) *cluster.Server {
		t.Helper()
		var found *cluster.Server
		must.Await(t, "a follower", 30*time.Second, func() bool {
			for _, s := range e.others(nil) {
				if s.Mode() == "follower" && (len(not) == 0 || not[0] != s) {
					found = s
				}
			}
			return found != nil
		})
		return found
	}
	kill := func() (killed *cluster.Server) {
		t.Helper()
		killed = e.WaitLeader()
		killed.Kill()
		return killed
	}
	back := func(s *cluster.Server) {
		t.Helper()
		must.OK(t, s.Spawn())
		must.OK(t, s.WaitReady())
	}

	adding := e.begin(ask(), "add", "4", four.Peer)
	killed := kill() // the leader dies before the fourth server runs
	must.OK(t, four.Spawn())
	must.Await(t, "the fourth is known", time.Minute, func() bool {
		return strings.Contains(e.roles(ask(four)), "4 ")
	})
	back(killed)
	killed = kill() // the leader dies while the fourth server follows, or just when it gets its vote
	back(killed)
	adding.wait()
	must.OK(t, four.WaitReady())

	lost := four
	lost.Kill()
	must.OK(t, os.RemoveAll(lost.Data()))
	must.OK(t, lost.Spawn())
	replacing := e.begin(ask(), "replace", "4")
	killed = kill()
	back(killed)
	replacing.wait()
	must.OK(t, lost.WaitReady())

	at := ask(four)
	leading := e.begin(at, "lead", strconv.Itoa(at.ID))
	killed = kill()
	back(killed)
	leading.wait()

	gone := ask()
	removing := e.begin(ask(gone), "remove", strconv.Itoa(gone.ID))
	if l := e.Leader(); l != nil && l != gone {
		l.Kill()
		back(l)
	}
	removing.wait()
	gone.Stop()
	left := e.others(nil)
	must.Equal(t, len(left), 3, "servers are left")
	for _, s := range left {
		must.Await(t, "all are level", time.Minute, func() bool {
			b, _, err := dialZK(t, "", s).Get(fmt.Sprintf("/fill/n%d", nodes-1))
			return err == nil && len(b) == 100 && strings.Count(e.roles(s), " voter") == 3
		})
	}
}

// fillMembers creates nodes of 100 bytes.
func fillMembers(t *testing.T, nodes int, at ...*cluster.Server) {
	t.Helper()
	c := dialZK(t, "", at...)
	must.Get(c.Create("/fill", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	data := bytes.Repeat([]byte("x"), 100)
	for i := 0; i < nodes; {
		var ops []any
		for ; i < nodes && len(ops) < 1000; i++ {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("/fill/n%d", i), Data: data,
				Acl: zk.WorldACL(zk.PermAll)})
		}
		must.Get(c.Multi(ops...))(t)
	}
}

// A rolling restart in the printed order completes, and clients notice no more than pauses.
func TestRollingRestartInTheOrderThatIsPrinted(t *testing.T) { withoutAndWithTLS(t, 0, rollingRestart) }

func rollingRestart(t *testing.T, e *ensemble) {
	c := dialZK(t, "", e.Servers...)
	id := c.SessionID()
	order := exec.Command(cluster.Zlock(t), "restart-order", "--wait", "-o", "plain", "--admin-addr",
		e.Servers[0].Admin)
	out := must.Get(order.StdoutPipe())(t)
	must.OK(t, order.Start())
	t.Cleanup(func() { order.Process.Kill() })
	lines := make(chan string)
	go func() {
		defer close(lines)
		b := make([]byte, 1000)
		for {
			n, err := out.Read(b)
			if err != nil {
				return
			}
			lines <- string(b[:n])
		}
	}()
	first := e.WaitLeader()
	var named []*cluster.Server
	for line := range lines {
		i, err := strconv.Atoi(strings.Split(line, "\t")[0])
		must.OK(t, err, "%v", line)
		s := e.Servers[i-1]
		named = append(named, s)
		s.Stop()
		must.OK(t, s.Spawn())
	}
	must.OK(t, order.Wait())
	if expect.Equal(t, len(named), 3, "length of %v", named) {
		expect.Equal(t, named[2], first, "named")
	}
	must.Await(t, "the client is served", 30*time.Second, func() bool {
		_, _, err := c.Get("/")
		return err == nil
	})
	expect.Equal(t, c.SessionID(), id, "the session did not outlive it")
}

// A server that cannot become a member is refused, and the message says why.
func TestWhatCannotBeAMemberIsRefused(t *testing.T) {
	t.Parallel()
	e := startMembers(t, 1)
	other := startMembers(t, 0)
	one := e.Servers[0]
	fourth := e.Servers[3]
	must.OK(t, fourth.Spawn())
	must.Await(t, "it waits", 30*time.Second, func() bool {
		return strings.Contains(fourth.Log(1<<30), "zlock member add 4")
	})
	for _, test := range []struct{ what, id, addr, want string }{
		{"another id", "5", fourth.Peer, "the server at " + fourth.Peer +
			" cannot become server 5: this is server 4, not 5"},
		{"a member's address", "4", e.Servers[1].Peer, "server 2 is at " + e.Servers[1].Peer},
		{"another cluster", "4", other.Servers[0].Peer, "the server at " + other.Servers[0].Peer +
			" cannot become server 4"},
		{"a client port", "4", one.Client, "server 4 "},
	} {
		_, errs, code := e.member(one, "-w", "1", "add", test.id, test.addr)
		expect.Equal(t, code, 1, "%s: exit code; it says %s", test.what, errs)
		expect.Has(t, errs, test.want, "%s: standard error", test.what)
	}
	expect.Equal(t, e.roles(one), "1 voter, 2 voter, 3 voter", "after refusals")
}
