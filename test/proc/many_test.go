package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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
		if time.Since(killed) > 30*time.Second {
			t.Fatalf("nobody serves: %v\n%s", err, other.LogTail())
		}
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
	if n := int(d.Stat().NumChildren); n != 3*each {
		t.Errorf("%d locks, want %d", n, 3*each)
	}
}
