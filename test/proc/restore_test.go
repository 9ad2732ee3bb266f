package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// reader reads the written and restored values through one server as fast as it can. It records what it saw,
// without repetitions.
type reader struct {
	s    *cluster.Server
	seen []string
}

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := zk.Dial(ctx, r.s.Client, zk.Options{Timeout: 10 * time.Second})
		if err != nil {
			continue
		}
		for i := 0; ctx.Err() == nil && c.Err() == nil; i++ {
			n, err := c.Get(ctx, [...]string{"/state/first", "/state/last"}[i%2])
			if v := string(n.Data); err == nil && (len(r.seen) == 0 || r.seen[len(r.seen)-1] != v) {
				r.seen = append(r.seen, v)
			}
		}
		c.Close(cancelled())
	}
}

// clusterName asks a server which cluster it belongs to.
func clusterName(t *testing.T, s *cluster.Server) string {
	t.Helper()
	resp := must.Get(http.Get("http://" + s.Admin + "/members"))(t)
	defer resp.Body.Close()
	var a struct {
		Cluster string `json:"cluster"`
	}
	must.OK(t, json.NewDecoder(resp.Body).Decode(&a))
	return a.Cluster
}

// TestRunningClusterIsRestored restores three servers while clients read and write. In every round it kills
// the leader at another time: before the backup is sent, while it passes through the log, and about when it
// takes effect.
func TestRunningClusterIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	c := cluster.Three(t, "--super-digest", superFlag)
	conn := dial(t, c.Servers[0].Client)
	const nodes = 3000
	must.Get(conn.Create(t.Context(), zk.Create{Path: "/state"}))(t)
	for i := range nodes {
		must.Get(conn.Create(t.Context(), zk.Create{Path: fmt.Sprintf("/state/n%d", i),
			Data: make([]byte, 4<<10)}))(t)
	}
	for _, path := range []string{"/state/first", "/state/last"} {
		must.Get(conn.Create(t.Context(), zk.Create{Path: path, Data: []byte("base")}))(t)
	}
	conn.Close(context.Background())
	file := filepath.Join(t.TempDir(), "backup")
	(&running{admin: c.Servers[0].Admin}).backup(t, file)
	name := clusterName(t, c.Servers[0])

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var readers []*reader
	for _, s := range c.Servers {
		r := &reader{s: s}
		readers = append(readers, r)
		wg.Go(func() { r.run(ctx) })
	}
	for round, after := range []time.Duration{0, 150 * time.Millisecond, 400 * time.Millisecond, time.Hour} {
		leader := c.WaitLeader()
		by := c.Others(leader)[round%2]
		writeBoth(t, by, fmt.Sprint("w", round))
		killed := make(chan struct{})
		kill := time.AfterFunc(after, func() { defer close(killed); leader.Kill() })
		text := (&running{admin: by.Admin}).zlock(t, "restore", file, "--yes", name[:8])
		t.Logf("round %d: %s", round, text)
		if kill.Stop() {
			t.Log("no server was killed in time")
		} else {
			<-killed
			leader.Start()
		}
		c.WaitServing(time.Minute)
		c.SameState()
		for _, s := range c.Servers {
			out, err := exec.Command(cluster.Build(t), "verify", file, s.Client).CombinedOutput()
			output(t, string(out), err)
		}
	}
	stop()
	wg.Wait()
	serversAreForgotten(t, file)
	rounds := "w0 base w1 base w2 base w3 base "
	for _, r := range readers {
		rest := "base " + rounds
		for _, v := range r.seen {
			_, after, ok := strings.Cut(rest, v+" ")
			must.That(t, ok, "server %d: a reader saw %v", r.s.ID, r.seen)
			rest = after
		}
		expect.That(t, len(r.seen) >= 4, "server %d: a reader saw %v only", r.s.ID, r.seen)
	}
}

// serversAreForgotten restores a cluster's backup on a single server and asks that server for the members.
// The server must not send its clients to the servers of the cluster.
func serversAreForgotten(t *testing.T, backup string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "alone")
	out, err := exec.Command(cluster.Build(t), "restore", backup, "--data-dir", dir).CombinedOutput()
	output(t, string(out), err)
	r := serve(t, cluster.Build(t), dir)
	conn := dial(t, r.client)
	defer conn.Close(context.Background())
	n := must.Get(conn.Get(t.Context(), "/zookeeper/config"))(t)
	expect.That(t, len(n.Data) <= 0, "a server alone tells of %q", n.Data)
}

// writeBoth sets /state/first and /state/last to one value, in one transaction.
func writeBoth(t *testing.T, s *cluster.Server, v string) {
	t.Helper()
	conn := dial(t, s.Client)
	defer conn.Close(context.Background())
	must.Get(conn.Multi(t.Context(), zk.SetData{Path: "/state/first", Data: []byte(v), Version: -1}, zk.SetData{
		Path: "/state/last", Data: []byte(v), Version: -1}))(t)
}

// TestRestoreIsRefused tries restores that zlock itself refuses before it sends anything.
func TestRestoreIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	r := serve(t, cluster.Build(t), filepath.Join(t.TempDir(), "data"))
	dir := t.TempDir()
	good, bad, torn, auth := filepath.Join(dir, "good"), filepath.Join(dir, "bad"), filepath.Join(dir, "torn"),
		filepath.Join(dir, "auth")
	r.backup(t, good)
	b := must.Get(os.ReadFile(good))(t)
	must.OK(t, os.WriteFile(torn, b[:len(b)-5], 0o600))
	b[len(b)/2] ^= 1
	must.OK(t, os.WriteFile(bad, b, 0o600))
	must.OK(t, os.WriteFile(auth, []byte("digest:super:wrong\n"), 0o600))
	zlock := cluster.Zlock(t)
	var members struct{ Cluster string }
	resp := must.Get(http.Get("http://" + r.admin + "/members"))(t)
	must.OK(t, json.NewDecoder(resp.Body).Decode(&members))
	resp.Body.Close()
	for _, x := range []struct {
		want string
		args []string
	}{
		{"use another backup", []string{bad, "--yes", members.Cluster}},
		{"use another backup", []string{torn, "--yes", members.Cluster}},
		{"no such file", []string{filepath.Join(dir, "none"), "--yes", members.Cluster}},
		{"the cluster at this address has another name, " + members.Cluster, []string{good, "--yes", "ffffffffffffffff"}},
		{"the cluster at this address has another name, " + members.Cluster, []string{good, "--yes", members.Cluster[:7]}},
		{"give the cluster's name with --yes " + members.Cluster[:8], []string{good}},
		{"are not those of the servers' --super-digest", []string{good, "--yes", members.Cluster}},
	} {
		out, err := exec.Command(zlock, append([]string{"restore", "--admin-addr", r.admin, "--auth-file", auth},
			x.args...)...).CombinedOutput()
		if expect.Fails(t, err, "%v", x.args) {
			expect.Has(t, string(out), x.want, "%v: standard output", x.args)
		}
	}
}

// TestRestoreFigures measures what docs/data.md says of a running cluster that is
// restored: three servers with a million nodes of 100 bytes, while clients write
// and read. Like TestFigures it runs only when asked for.
func TestRestoreFigures(t *testing.T) {
	if os.Getenv("ZLOCKD_FIGURES") == "" {
		t.Skip("measures; set ZLOCKD_FIGURES=1")
	}
	bin, dir := cluster.Build(t), t.TempDir()
	zoo, ours, file := filepath.Join(dir, "zoo"), filepath.Join(dir, "ours"), filepath.Join(dir, "backup")
	fill(t, zoo, 1_000_000)
	t.Log(measured(t, bin, "import", "--from", zoo, "--data-dir", ours))
	s := serve(t, bin, ours)
	s.backup(t, file)
	s.stop()

	c := cluster.Three(t, "--super-digest", superFlag)
	r := &running{admin: c.Servers[0].Admin}
	yes := clusterName(t, c.Servers[0])
	begun := time.Now()
	t.Log(r.zlock(t, "restore", file, "--yes", yes))
	t.Logf("into empty servers: %.2f s", time.Since(begun).Seconds())

	u := newUsers(t, c)
	time.Sleep(time.Second)
	u.answers.Store(0)
	time.Sleep(5 * time.Second)
	mean := u.answers.Swap(0) / 5
	pids := make([]int, len(c.Servers))
	for i, s := range c.Servers {
		pids[i] = s.Pid()
		t.Logf("server %d: %d MiB before", i+1, rss(pids[i])>>20)
		// Reset the kernel's record of the peak of the server's memory.
		must.OK(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pids[i]), []byte("5"), 0))
	}
	u.longest.Store(0)
	restored := make(chan time.Duration)
	begun = time.Now()
	go func() {
		t.Log(r.zlock(t, "restore", file, "--yes", yes))
		restored <- time.Since(begun)
	}()
	var seconds []int64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
			seconds = append(seconds, u.answers.Swap(0))
		case <-u.ended:
			over = true
		}
	}
	switched := time.Now()
	conn := dial(t, c.Servers[1].Client)
	must.Get(conn.Get(t.Context(), "/d0001"))(t)
	t.Logf("first answer to a new session %d ms after the switch", time.Since(switched).Milliseconds())
	conn.Close(cancelled())
	t.Logf("over as many nodes: %.2f s, the switch after %.2f s", (<-restored).Seconds(),
		switched.Sub(begun).Seconds())
	t.Logf("answers a second: %d before, %v until the switch: slowest %d %%; longest answer %d ms", mean,
		seconds, 100*slices.Min(seconds)/mean, u.longest.Load())
	for i, pid := range pids {
		t.Logf("server %d: at most %d MiB", i+1, peakRSS(pid)>>10)
	}
	u.wait()
	c.SameState()
}

// users are sixteen clients that write and sixteen that read, until a restore ends their sessions.
type users struct {
	answers, longest atomic.Int64
	ended            chan struct{} // closed when the first client is cut off
	once             sync.Once
	wg               sync.WaitGroup
}

func newUsers(t *testing.T, c *cluster.Ensemble) *users {
	u := &users{ended: make(chan struct{})}
	for i := range 32 {
		conn, path := dial(t, c.Servers[i%3].Client), fmt.Sprintf("/d%04d", i)
		u.wg.Go(func() {
			defer conn.Close(cancelled())
			for {
				asked := time.Now()
				var err error
				if i < 16 {
					_, err = conn.Set(context.Background(), path, []byte("x"), -1)
				} else {
					_, err = conn.Get(context.Background(), path)
				}
				if err != nil || conn.Err() != nil {
					u.once.Do(func() { close(u.ended) })
					return
				}
				u.answers.Add(1)
				took := time.Since(asked).Milliseconds()
				for was := u.longest.Load(); took > was && !u.longest.CompareAndSwap(was, took); was = u.longest.Load() {
				}
			}
		})
	}
	return u
}

func (u *users) wait() { u.wg.Wait() }
