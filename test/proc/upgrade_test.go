package proc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestG24UpgradeAndDowngrade upgrades a cluster of each release to this program, takes it back, and upgrades
// it again. It restarts one server after another, the leader last, while clients write and hold locks. No
// confirmed write is lost, no session ends, and no lock has two holders. After that the test takes a first
// ticket. Servers refuse tickets while one of them is of the first release, and after the first ticket that
// release refuses to start.
func TestG24UpgradeAndDowngrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds releases: runs without -short")
	}
	for _, version := range cluster.Releases(t) {
		t.Run(version, func(t *testing.T) { upgradeAndDowngrade(t, version) })
	}
}

func upgradeAndDowngrade(t *testing.T, version string) {
	old := filepath.Join(cluster.Release(t, version), "zlockd")
	knowsTickets := version != cluster.FirstRelease
	now := must.Get(cluster.Binary())(t)
	c := cluster.Run(t, cluster.Options{Nodes: 3, Binary: old})
	w := StartWriters(t, c, 2, 30*time.Second)
	locks := startLockers(t, c.Addrs())
	tickets := must.Get(cluster.FreePorts(3))(t)
	common := map[*cluster.Server][]string{}
	for _, s := range c.Servers {
		common[s] = s.Args[1:]
	}
	upgrade := func(s *cluster.Server) {
		replace(s, now, append(slices.Clone(common[s]), "--ticket-addr", tickets[s.ID-1]))
	}
	downgrade := func(s *cluster.Server) { replace(s, old, common[s]) }
	for _, step := range []func(*cluster.Server){upgrade, downgrade, upgrade} {
		for i, s := range leaderLast(c) {
			step(s)
			s.WaitServing(time.Minute)
			if i == 0 && s.Args[0] == now && !knowsTickets {
				expect.Has(t, ask(t, tickets[s.ID-1], http.StatusServiceUnavailable),
					"runs a release that knows neither tickets nor --one-layout")
			}
			time.Sleep(300 * time.Millisecond) // let clients write while servers run both programs
		}
		c.SameState()
	}
	w.Check(c)
	locks.check()
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost")
	// With all servers stopped, this program reads the data of the last release, and that release reads the
	// data of this program.
	for _, s := range c.Servers {
		s.Stop()
	}
	verify := exec.Command(old, "verify", c.Servers[0].Data(), c.Servers[1].Data())
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("release %s does not read the data of this program: %v\n%s", version, err, out)
	}
	must.OK(t, c.StartAll())
	c.WaitServing(time.Minute)
	ask(t, tickets[0], http.StatusCreated)
	if !knowsTickets {
		refuses(t, c, old, common[leaderLast(c)[0]])
	}
}

// TestFirstReleaseRefusesAClusterOfThisProgram: if this program begins a cluster, the cluster has rules that
// the first release does not know.
func TestFirstReleaseRefusesAClusterOfThisProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a release: runs without -short")
	}
	old := filepath.Join(cluster.Release(t, cluster.FirstRelease), "zlockd")
	c := cluster.Three(t)
	refuses(t, c, old, leaderLast(c)[0].Args[1:])
}

// leaderLast returns the servers in the order of an upgrade, the leader last.
func leaderLast(c *cluster.Ensemble) []*cluster.Server {
	leader := c.WaitLeader()
	return append(c.Others(leader), leader)
}

func replace(s *cluster.Server, program string, args []string) {
	s.Stop()
	s.Args = append([]string{program}, args...)
	s.Start()
}

// ask() requests a ticket. It expects the status `want`, and returns the answer.
func ask(t *testing.T, addr string, want int) string {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+addr+"/v1/locks/upgrade/ticket", nil))(t)
	req.Header.Set("Zlock-Ticket", "0123456789abcdefghijklmn")
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	text := string(must.Get(io.ReadAll(res.Body))(t))
	expect.Equal(t, res.StatusCode, want, "the answer is %s", text)
	return text
}

// refuses() replaces a server's program by the old one. The old program must stop at an entry that it does
// not know. Then the server must serve with its own program again.
func refuses(t *testing.T, c *cluster.Ensemble, old string, args []string) {
	t.Helper()
	s := leaderLast(c)[0]
	mine := s.Args
	seen := len(s.Log(1 << 30))
	replace(s, old, args)
	select {
	case <-s.Exited():
	case <-time.After(time.Minute):
		t.Error("the old release goes on")
	}
	expect.Has(t, s.Log(1 << 30)[seen:], "log entry of unknown kind ")
	replace(s, mine[0], mine[1:])
	s.WaitServing(time.Minute)
	c.SameState()
}

// lockers are clients that take one lock in turn, and one client that holds another lock all the time.
type lockers struct {
	t      *testing.T
	stop   context.CancelFunc
	wg     sync.WaitGroup
	inside atomic.Int32
	holds  atomic.Int32
	kept   *client.Lease
	second *client.Client
}

func startLockers(t *testing.T, addrs string) *lockers {
	t.Helper()
	dial := func() *client.Client {
		c := must.Get(client.Dial(t.Context(), addrs, client.WithSessionTimeout(30*time.Second),
			client.WithLogger(slog.New(slog.DiscardHandler))))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	ctx, stop := context.WithCancel(t.Context())
	l := &lockers{t: t, stop: stop, second: dial()}
	t.Cleanup(stop)
	l.kept = must.Get(dial().Mutex("/upgrade/kept").Lock(ctx))(t)
	for range 3 {
		m := dial().Mutex("/upgrade/turns")
		l.wg.Go(func() {
			for ctx.Err() == nil {
				err := m.Do(ctx, func(context.Context, *client.Lease) error {
					expect.Equal(t, l.inside.Add(1), 1, "holders of one lock")
					time.Sleep(time.Millisecond)
					l.inside.Add(-1)
					l.holds.Add(1)
					return nil
				})
				expect.That(t, err == nil || ctx.Err() != nil, "a lock in turn: %v", err)
			}
		})
	}
	return l
}

// check() stops the clients. One client held a lock all the time, so no other client can take that lock.
func (l *lockers) check() {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	l.t.Logf("%d holds in turn", l.holds.Load())
	expect.That(l.t, l.holds.Load() > 0, "the lock was never taken in turn")
	expect.OK(l.t, l.kept.Err(), "the lock that was held all the time")
	_, err := l.second.Mutex("/upgrade/kept").TryLock(l.t.Context())
	expect.That(l.t, errors.Is(err, client.ErrNotAcquired), "a second holder: %v", err)
}
