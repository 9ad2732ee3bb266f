package proc

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var (
	idle        = flag.Int("idle", 999, "sessions that only ping")
	idleTimeout = flag.Duration("idle-timeout", 9*time.Second, "of these sessions")
)

// manyClient is a client process that has many sessions.
type manyClient struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// startClient opens n sessions at the servers in turn, and returns when all are open.
func startClient(t *testing.T, name string, servers []string, n int) *manyClient {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ZLOCKD_MANY_SERVERS="+strings.Join(servers, ","), "ZLOCKD_MANY_NAME="+name,
		"ZLOCKD_MANY_SESSIONS="+strconv.Itoa(n), "ZLOCKD_MANY_TIMEOUT="+idleTimeout.String())
	cmd.Stderr = os.Stderr
	c := &manyClient{must.Get(cmd.StdinPipe())(t), bufio.NewReader(must.Get(cmd.StdoutPipe())(t))}
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	must.Equal(t, must.Get(c.out.ReadString('\n'))(t), "open\n")
	return c
}

// TestG10IdleSessionsOutliveTheLeader repeatedly kills the leader under many idle sessions of nine seconds.
// No session may end. Sessions of the dead server find another server within five seconds, and sessions of
// the other servers notice nothing. With -idle 50000 -idle-timeout 30s the test needs the descriptors of
// three client processes.
func TestG10IdleSessionsOutliveTheLeader(t *testing.T) {
	c := cluster.Run(t, cluster.Options{Nodes: 3, Config: []string{"maxCnxns=100000"}})
	root := open(t, c.WaitLeader())
	must.Get(root.Create("/many", nil, jute.FlagPersistent))(t)
	root.Close()
	addrs := strings.Split(c.Addrs(), ",")
	each := *idle / 9 * 3 // sessions of each of the three processes; a third of them is at each server
	var took []time.Duration
	calm, best := false, time.Duration(math.MaxInt64)
	for round := 0; round < *kills || (!calm || best > 5*time.Second) && round < *kills+5; round++ {
		// Each process begins with a different server, so that all servers have equally many sessions.
		began := time.Now()
		var clients []*manyClient
		for i := range addrs {
			clients = append(clients, startClient(t, fmt.Sprintf("%d-%d", round, i),
				slices.Concat(addrs[i:], addrs[:i]), each))
		}
		t.Logf("%d sessions opened in %v", 3*each, time.Since(began).Round(time.Millisecond))
		time.Sleep(*idleTimeout / 3) // by then all sessions have pinged
		lead := c.WaitLeader()
		ceased := outages(c.Others(lead))
		killed := time.Now()
		lead.Kill()
		time.Sleep(*idleTimeout + time.Second) // by then a forgotten session has ended
		look := open(t, c.Others(lead)[0])
		must.OK(t, look.Sync("/"))
		names, _, err := look.Children("/many", false)
		must.OK(t, err)
		names = slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, fmt.Sprint(round, "-"))
		})
		expect.Equal(t, len(names), 3*each, "locks of the sessions")
		for _, m := range clients {
			m.in.Close()
		}
		var longest time.Duration
		for i, m := range clients {
			var o outcome
			must.OK(t, json.NewDecoder(m.out).Decode(&o))
			expect.Equal(t, o.Expired, 0, "process %d: expired", i)
			expect.Equal(t, o.Unattached, 0, "process %d: unattached", i)
			undisturbed := len(o.Lost) == 1 && o.Lost[lead.Client] == each/3
			calm = calm || undisturbed
			expect.That(t, undisturbed || outages(c.Others(lead)) > ceased, "process %d: %d of its sessions "+
				"were at %s, and connections were lost: %v", i, each/3, lead.Client, o.Lost)
			expect.That(t, o.First.After(killed), "process %d: a connection was lost before the leader died", i)
			took = append(took, o.Away...)
			longest = max(longest, slices.Max(append(o.Away, 0)))
		}
		best = min(best, longest)
		lead.Start()
		lead.WaitServing(time.Minute)
	}
	expect.That(t, calm, "the survivors' clients lost connections each time")
	report(t, "sessions of a dead leader attached again", took)
	expect.That(t, best <= 5*time.Second, "a session was without a server for %v, at least", best)
}

var znodes = flag.Int("znodes", 50_000, "nodes of a large tree")

// outages() counts how often servers have stopped serving clients. On a busy machine a server may be without
// a leader for so long that it must stop serving. Then its clients lose their connections.
func outages(servers []*cluster.Server) (n int) {
	for _, s := range servers {
		n += strings.Count(s.Log(1<<30), "not serving clients")
	}
	return n
}

// killLeader kills the leader under load, as often as `times` says. It returns for each kill how long it took
// until the other servers answered a write.
func killLeader(t *testing.T, c *cluster.Ensemble, times int) (resumed []time.Duration) {
	t.Helper()
	w := StartWriters(t, c, 2, 10*time.Second)
	calm := false
	for i := 0; i < times || !calm && i < times+5; i++ {
		time.Sleep(300 * time.Millisecond)
		lead := c.WaitLeader()
		lost, ended := w.disturbances(c.Others(lead))
		ceased := outages(c.Others(lead))
		at := time.Now()
		lead.Kill()
		resumed = append(resumed, w.awaitWrite(at.Add(2*time.Millisecond), lead, 20*time.Second))
		time.Sleep(300 * time.Millisecond)
		l, e := w.disturbances(c.Others(lead))
		calm = calm || l == lost
		if l != lost && outages(c.Others(lead)) == ceased || e != ended {
			t.Errorf("clients of the survivors lost %d connections and %d sessions", l-lost, e-ended)
		}
		lead.Start()
		lead.WaitServing(60 * time.Second)
	}
	expect.That(t, calm, "the survivors' clients lost connections each time")
	w.Check(c)
	return resumed
}

// restartAll ends all servers and starts them again. It returns the time from that start until all of them
// serve.
func restartAll(t *testing.T, c *cluster.Ensemble, sig syscall.Signal) time.Duration {
	t.Helper()
	for _, s := range c.Servers {
		s.Signal(sig)
	}
	for _, s := range c.Servers {
		select {
		case <-s.Exited():
		case <-time.After(30 * time.Second):
			t.Fatalf("server %d did not stop", s.ID)
		}
	}
	at := time.Now()
	for _, s := range c.Servers {
		s.Start()
	}
	c.WaitServing(60 * time.Second)
	return time.Since(at)
}

// TestG21LargeTree kills the leader of a large tree, then stops and restarts the whole cluster with that
// tree.
func TestG21LargeTree(t *testing.T) {
	c := cluster.Three(t)
	began := time.Now()
	Fill(t, c.WaitLeader(), *znodes)
	t.Logf("%d nodes created in %v", *znodes, time.Since(began).Round(time.Millisecond))
	large := killLeader(t, c, *kills)
	// Try again: a large tree that delays writes does so most times, a busy machine only sometimes.
	for try := 0; try < 5 && median(large) > time.Second; try++ {
		large = append(large, killLeader(t, c, 1)...)
	}
	report(t, "writes resume with the large tree", large)
	expect.That(t, median(large) <= time.Second, "writes resume only after %v with %d nodes", large, *znodes)
	for _, way := range []struct {
		name string
		sig  syscall.Signal
	}{{"in order", syscall.SIGTERM}, {"by kill -9", syscall.SIGKILL}} {
		// A restart takes half a second. Try several times: a tree that makes starts slow does so each time,
		// a busy machine only sometimes.
		best := time.Duration(math.MaxInt64)
		for try := 0; try < 5 && best > 5*time.Second; try++ {
			best = min(best, restartAll(t, c, way.sig))
		}
		t.Logf("all three serve %v after a stop %s", best.Round(time.Millisecond), way.name)
		expect.That(t, best <= 5*time.Second, "after a stop %s it takes %v until all serve", way.name, best)
		for _, s := range c.Servers {
			n := s.Metric("znode_count")
			expect.That(t, n >= int64(*znodes), "server %d has %d nodes", s.ID, n)
		}
	}
	c.SameState()
}
