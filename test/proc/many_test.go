package proc

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
	"github.com/zlockd/zlockd/test/wire"
)

// client is a process with sessions.
type manyClient struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

func startClient(t *testing.T, name string, servers []string, n int) *manyClient {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ZLOCKD_MANY_SERVERS="+strings.Join(servers, ","), "ZLOCKD_MANY_NAME="+name,
		"ZLOCKD_MANY_SESSIONS="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &manyClient{in, bufio.NewReader(out), cmd}
}

// writes measures lone writes of a client of its own for a while.
func loneWrites(t *testing.T, addr string, long time.Duration) (median time.Duration) {
	t.Helper()
	c := must.Get(wire.OpenPipe(addr, manyTimeout))(t)
	defer c.Drop()
	var took []time.Duration
	for end := time.Now().Add(long); time.Now().Before(end); {
		from := time.Now()
		c.Set("/many", nil)
		must.Get(c.Do())(t)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func resident(s *cluster.Server) (bytes int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.Pid()))
	if f := strings.Fields(string(b)); len(f) > 1 {
		pages, _ := strconv.Atoi(f[1])
		bytes = pages * os.Getpagesize()
	}
	return bytes
}

func TestManySessionsSurviveTheirLeader(t *testing.T) {
	each := 200
	if v := os.Getenv("ZLOCKD_MANY"); v != "" {
		each, _ = strconv.Atoi(v)
	} else if testing.Short() {
		t.Skip("servers as processes")
	}
	e := cluster.Run(t, cluster.Options{Nodes: 3, Config: []string{"maxCnxns=100000"}})
	admin := must.Get(wire.OpenPipe(e.Servers[0].Client, manyTimeout))(t)
	admin.Create("/many", nil, 0)
	must.Get(admin.Do())(t)
	admin.Close()
	var before []int
	for _, s := range e.Servers {
		before = append(before, resident(s))
	}
	// Each process begins with another server, so that all servers have equally many.
	began := time.Now()
	var list []*manyClient
	addrs := strings.Split(e.Addrs(), ",")
	for i := range addrs {
		list = append(list, startClient(t, fmt.Sprint("p", i), slices.Concat(addrs[i:], addrs[:i]), each))
	}
	for _, c := range list {
		if line, err := c.out.ReadString('\n'); line != "open\n" {
			t.Fatal(line, err)
		}
	}
	t.Logf("%d sessions on each of three servers, opened in %v", each, time.Since(began).Round(time.Millisecond))
	leader := e.Leader()
	other := e.Servers[0]
	if other == leader {
		other = e.Servers[1]
	}
	alone := loneWrites(t, other.Client, 3*time.Second)
	for i, s := range e.Servers {
		t.Logf("server %d: %d bytes of resident memory for each session", s.ID, (resident(s)-before[i])/each)
	}
	leader.Kill()
	killed := time.Now()
	for {
		c, err := wire.OpenPipe(other.Client, manyTimeout)
		if err == nil {
			c.Drop()
			break
		}
		must.That(t, time.Since(killed) <= 30*time.Second, "nobody serves: %v\n%s", err, other.LogTail())
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the first session after %v", time.Since(killed).Round(time.Millisecond))
	t.Logf("a lone write of somebody else: %v at the median, %v while %d sessions come back", alone,
		loneWrites(t, other.Client, 5*time.Second), each)
	for _, c := range list {
		c.in.Close()
	}
	for i, c := range list {
		var o outcome
		must.OK(t, json.NewDecoder(c.out).Decode(&o))
		t.Logf("process %d: %+v", i, o)
		expect.That(t, o.Expired <= 0 && o.Unattached <= 0,
			"process %d: %d sessions expired, %d not attached again", i, o.Expired, o.Unattached)
		expect.That(t, o.Longest <= 10*time.Second, "process %d: a session was away for %v", i, o.Longest)
	}
	// The clients have ended without a word; their sessions last.
	admin = must.Get(wire.OpenPipe(other.Client, manyTimeout))(t)
	defer admin.Drop()
	admin.Exists("/many", false)
	r := must.Get(admin.Do())(t)
	d := jute.NewDecoder(r.Body)
	n := int(d.Stat().NumChildren)
	expect.Equal(t, n, 3*each, "%d locks", n)
}

var idle = flag.Int("idle", 1000, "sessions that only ping")

// TestG10IdleSessionsOutliveTheLeader kills the leader under many idle sessions of six seconds, again and
// again. None may end; those of the dead server find another within five seconds, and those of the others
// notice nothing.
func TestG10IdleSessionsOutliveTheLeader(t *testing.T) {
	c := cluster.Three(t)
	began := time.Now()
	h := StartHerd(t, c, *idle, 6*time.Second)
	t.Logf("%d sessions opened in %v", *idle, time.Since(began).Round(time.Millisecond))
	time.Sleep(2 * time.Second) // all have pinged
	n := h.Disconnects.Load()
	expect.That(t, n <= 0, "%d connections ended before anything happened", n)
	var took []time.Duration
	for range *kills {
		lead := c.WaitLeader()
		theirs, at := h.On(lead), time.Now()
		lead.Kill()
		for len(h.Moves(at)) < theirs || h.Attached() < *idle {
			if time.Since(at) > 20*time.Second {
				t.Fatalf("of %d sessions %d are attached 20 s after the leader's death", *idle, h.Attached())
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, m := range h.Moves(at) {
			if m.from == lead {
				took = append(took, m.at.Sub(m.lost))
			} else {
				t.Errorf("a client of surviving server %d lost its connection: %v", m.from.ID, m.why)
			}
		}
		if theirs > 0 {
			t.Logf("%d sessions of server %d attached to others within %v", theirs, lead.ID,
				took[len(took)-1].Round(time.Millisecond))
		}
		time.Sleep(time.Second)
		lead.Start()
		lead.WaitServing(20 * time.Second)
		h.Spread()
	}
	must.That(t, len(took) != 0, "no leader had a client")
	report(t, "sessions of a dead leader attached again", took)
	worst := took[len(took)-1]
	expect.That(t, worst <= 5*time.Second, "a session was without a server for %v", worst)
	time.Sleep(7 * time.Second) // longer than the timeout: a forgotten session has ended by now
	expect.Equal(t, h.Attached(), *idle, "of %d sessions attached at the end", *idle)
	t.Logf("%d connections ended, %d pings slower than 2 s, %d sessions expired", h.Disconnects.Load(),
		h.SlowPings.Load(), h.Expired.Load())
	n = h.Expired.Load()
	expect.That(t, n <= 0, "%d sessions expired", n)
}

var znodes = flag.Int("znodes", 50_000, "nodes of a large tree")

// killLeader kills the leader some times under load and returns when writes went on each time.
func killLeader(t *testing.T, c *cluster.Ensemble, times int) (resumed []time.Duration) {
	t.Helper()
	w := StartWriters(t, c, 2, 10*time.Second)
	for range times {
		time.Sleep(300 * time.Millisecond)
		lead := c.WaitLeader()
		lost, ended := w.disturbances(c.Others(lead))
		at := time.Now()
		lead.Kill()
		resumed = append(resumed, w.awaitWrite(at.Add(2*time.Millisecond), lead, 20*time.Second))
		time.Sleep(300 * time.Millisecond)
		if l, e := w.disturbances(c.Others(lead)); l != lost || e != ended {
			t.Errorf("clients of the survivors lost %d connections and %d sessions", l-lost, e-ended)
		}
		lead.Start()
		lead.WaitServing(60 * time.Second)
	}
	w.Check(c)
	return resumed
}

// restartAll ends every server, starts all again, and returns how long it took
// from there until each of them served.
func restartAll(t *testing.T, c *cluster.Ensemble, sig syscall.Signal) time.Duration {
	t.Helper()
	for _, s := range c.Servers {
		s.MustSignal(sig)
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

// TestG21LargeTree compares the fail-over of a large tree with that of an
// empty one, and stops and starts the whole cluster with it.
func TestG21LargeTree(t *testing.T) {
	c := cluster.Three(t)
	report(t, "writes resume with an empty tree", killLeader(t, c, *kills))
	began := time.Now()
	Fill(t, c.WaitLeader(), *znodes)
	t.Logf("%d nodes created in %v", *znodes, time.Since(began).Round(time.Millisecond))
	large := killLeader(t, c, *kills)
	report(t, "writes resume with the large tree", large)
	if p50 := large[len(large)/2]; p50 > time.Second {
		t.Errorf("writes resume only after %v with %d nodes", p50, *znodes)
	}
	for _, way := range []struct {
		name string
		sig  syscall.Signal
	}{{"in order", syscall.SIGTERM}, {"by kill -9", syscall.SIGKILL}} {
		took := restartAll(t, c, way.sig)
		t.Logf("all three serve %v after a stop %s", took.Round(time.Millisecond), way.name)
		expect.That(t, took <= 5*time.Second,
			"after a stop %s it takes %v until all serve", way.name, took)
		for _, s := range c.Servers {
			n := s.Metric("znode_count")
			expect.That(t, n >= int64(*znodes), "server %d has %d nodes", s.ID, n)
		}
	}
	c.SameState()
}
