package proc

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// TestSurvivorBecomesACluster loses two servers of three for good, and recovers the third. It brings the two
// back empty, with the commands that `zlockd recover` prints.
func TestSurvivorBecomesACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	c := cluster.Three(t, "--super-digest", superFlag)
	conn := dial(t, c.Servers[0].Client)
	for i := range 50 {
		must.Get(conn.Create(t.Context(), zk.Create{Path: fmt.Sprint("/n", i), Data: []byte("x")}))(t)
	}
	must.OK(t, conn.Sync(t.Context(), "/"))
	survivor := c.Servers[0]
	lost := c.Others(survivor)
	for _, s := range lost {
		s.Kill()
	}
	conn.Close(cancelled())
	saysWhatToDo(t, c, survivor)
	survivor.Kill()
	bin := cluster.Build(t)
	out, err := exec.Command(bin, "recover", "--data-dir", survivor.Data()).CombinedOutput()
	must.Fails(t, err)
	must.Has(t, string(out), "At most these writes are lost", "standard output")
	must.Has(t, string(out), "give --yes", "standard output")
	out, err = exec.Command(bin, "recover", "--data-dir", survivor.Data(), "--yes").CombinedOutput()
	t.Log(output(t, string(out), err))

	survivor.Start()
	survivor.WaitServing(time.Minute)
	conn = dial(t, survivor.Client)
	defer conn.Close(cancelled())
	for i := range 50 {
		must.OK(t, expect.Err(conn.Get(t.Context(), fmt.Sprint("/n", i))), "/n%d", i)
	}
	for _, s := range lost {
		must.OK(t, os.RemoveAll(s.Data()))
		s.Start()
	}
	r := &running{admin: survivor.Admin}
	for _, line := range regexp.MustCompile(`(?m)^ +zlock (member add .*)$`).FindAllStringSubmatch(string(out),
		-1) {
		t.Log(line[1], r.zlock(t, strings.Fields(line[1])...))
	}
	for _, s := range lost {
		s.WaitServing(time.Minute)
	}
	for range 130 { // more than 128 writes, because servers note a digest every 128 zxids
		must.Get(conn.Set(t.Context(), "/n1", []byte("y"), -1))(t)
	}
	c.SameState()
	list := r.zlock(t, "member", "list", "-o", "plain")
	expect.Equal(t, strings.Count(list, "voter")+strings.Count(list, "leader"), 3,
		"strings.Count(list, 'voter')+strings.Count(list, 'leader')")
	expect.Lacks(t, list, "non-voter")
}

// saysWhatToDo waits until a server without a majority names the command `zlockd recover`, in its answer to
// /ready and in its refusal to change the members.
func saysWhatToDo(t *testing.T, c *cluster.Ensemble, s *cluster.Server) {
	t.Helper()
	way := "zlockd recover --data-dir " + s.Data()
	must.Await(t, "/ready names the way out", 2*time.Minute, func() bool {
		resp := must.Get(http.Get("http://" + s.Admin + "/ready"))(t)
		defer resp.Body.Close()
		return strings.Contains(string(must.Get(io.ReadAll(resp.Body))(t)), way)
	})
	zlock := cluster.Zlock(t)
	auth := filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:"+super+"\n"), 0o600))
	out, err := exec.Command(zlock, "member", "add", "9", "127.0.0.1:1", "--admin-addr", s.Admin, "--auth-file",
		auth).CombinedOutput()
	expect.Fails(t, err)
	expect.Has(t, string(out), way, "zlock member: standard output")
	var all []string
	for _, s := range c.Servers {
		all = append(all, s.Client)
	}
	out, err = exec.Command(zlock, "doctor", "-S", strings.Join(all, ","), "--connect-timeout",
		"2s").CombinedOutput()
	expect.Fails(t, err)
	expect.Has(t, string(out), "zlockd recover", "zlock doctor: standard output")
}

// cancelled() returns a context that has ended, to close connections that no server answers any longer.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Fill creates n nodes of 100 bytes, a thousand in a directory, in few requests.
func Fill(t testing.TB, s *cluster.Server, n int) {
	t.Helper()
	c := must.Get(s.Open())(t)
	defer c.CloseSession()
	const perMulti, perDir = 500, 1000
	data := make([]byte, 100)
	var ops []wire.Op
	flush := func() {
		f, err := c.Call(jute.OpMulti, wire.Multi(ops...))
		if err == nil && f.Code != jute.OK {
			err = f.Code
		}
		must.OK(t, err, "fill")
		ops = ops[:0]
	}
	add := func(path string, data []byte) {
		ops = append(ops, wire.Op{Type: jute.OpCreate, Body: wire.Create(path, data, jute.WorldAnyone,
			jute.FlagPersistent)})
		if len(ops) == perMulti {
			flush()
		}
	}
	add("/big", nil)
	for i := range n {
		dir := fmt.Sprintf("/big/%05d", i/perDir)
		if i%perDir == 0 {
			add(dir, nil)
		}
		add(fmt.Sprintf("%s/node-%07d", dir, i), data)
	}
	if len(ops) > 0 {
		flush()
	}
}

var handoffs = flag.Int("handoffs", 300, "how often a write and a hand-over are timed")

func open(t *testing.T, s *cluster.Server) *wire.Conn {
	t.Helper()
	c := must.Get(s.Open())(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func median(list []time.Duration) time.Duration {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

// TestWriteThroughFollowerIsNudged writes through the leader and through a follower in turn, and measures the
// follower's delay: from the leader's event to a watching client until the follower answers its own client. A
// follower that learned of commits only by the next heartbeat would be slower by orders of magnitude.
func TestWriteThroughFollowerIsNudged(t *testing.T) {
	c := cluster.Three(t)
	lead := c.WaitLeader()
	follower := c.Others(lead)[0]
	direct, through, watcher := open(t, lead), open(t, follower), open(t, lead)
	for _, path := range []string{"/direct", "/through"} {
		must.Get(direct.Create(path, nil, jute.FlagPersistent))(t)
	}
	must.OK(t, through.Sync("/"))
	must.OK(t, watcher.AddWatch("/through", 0))
	told := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := watcher.Next(); err != nil {
				return
			}
			told <- time.Now()
		}
	}()
	timed := func(c *wire.Conn, path string) (took time.Duration, answered time.Time) {
		began := time.Now()
		must.Get(c.SetData(path, []byte("x"), -1))(t)
		answered = time.Now()
		return answered.Sub(began), answered
	}
	var atLeader, atFollower, behind []time.Duration
	for range *handoffs {
		took, _ := timed(direct, "/direct")
		atLeader = append(atLeader, took)
		took, answered := timed(through, "/through")
		atFollower = append(atFollower, took)
		behind = append(behind, max(0, answered.Sub(<-told)))
	}
	report(t, "write through the leader  ", atLeader)
	report(t, "write through a follower  ", atFollower)
	report(t, "answered after the leader's own event", behind)
	l, f := median(atLeader), median(atFollower)
	expect.That(t, f <= 3*l, "a write through a follower takes %v, through the leader %v", f, l)
}

// TestHandOverBetweenServers deletes a lock's node at one server while a session waits at another one, for
// each pair of servers. It measures the time from the beginning of the delete until the waiting session hears
// of it.
func TestHandOverBetweenServers(t *testing.T) {
	c := cluster.Three(t)
	var clients []*wire.Conn
	for _, s := range c.Servers {
		clients = append(clients, open(t, s))
	}
	var took []time.Duration
	for i := range *handoffs {
		holder, waiter := clients[i%3], clients[(i+1+i/3%2)%3]
		must.Get(holder.Create("/held", nil, jute.FlagEphemeral))(t)
		must.OK(t, waiter.Sync("/held"))
		must.Get(waiter.Exists("/held", true))(t)
		heard := make(chan error, 1)
		var at time.Time
		go func() {
			f, err := waiter.Next()
			at = time.Now()
			if err == nil && (f.Event == nil || f.Event.Type != jute.EventDeleted) {
				t.Errorf("an event was expected, not %+v", f)
			}
			heard <- err
		}()
		began := time.Now()
		must.OK(t, holder.Delete("/held", -1))
		must.OK(t, <-heard)
		took = append(took, at.Sub(began))
		must.OK(t, holder.Sync("/"))
	}
	report(t, "a deleted lock is heard of on another server after", took)
}
