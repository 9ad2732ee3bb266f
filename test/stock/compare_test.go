//go:build stock

package stock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The tests of this file show what docs/coming-from.md says of other locks: what happens to a lock when its
// holder dies, when its holder is paused, and when the server fails over.

const shortTTL = 300 * time.Millisecond

func mustTake(t *testing.T, l otherLock, owner string, ttl time.Duration, want bool) {
	t.Helper()
	must.Equal(t, must.Get(l.take("job", owner, ttl))(t), want, "%s takes the lock", owner)
}

func TestDatabaseRowAsLock(t *testing.T) {
	beside(t)
	dir := pgDir(t)
	addr, primary := startPostgres(t, dir)
	dial := func(addr string) *pgConn {
		t.Helper()
		c := must.Get(dialPostgres(addr))(t)
		t.Cleanup(c.close)
		return c
	}
	a, b := dial(addr), dial(addr)
	must.OK(t, a.prepare())
	mustTake(t, a, "a", 0, true)
	mustTake(t, b, "b", 0, false)

	// The holder dies: its row stays until an operator removes it.
	a.close()
	must.Await(t, "the server has noticed", time.Minute, func() bool {
		_, n, err := b.query("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
		return err == nil && n == "1"
	})
	mustTake(t, b, "b", 0, false)
	if ok, err := b.give("job", "a"); !ok || err != nil {
		t.Fatal(ok, err)
	}

	// The server fails over to a standby that lags a little behind, as any standby without synchronous
	// replication may. Then two clients hold the lock.
	if _, _, err := b.query("SELECT pg_create_physical_replication_slot('s')"); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(addr)
	second := filepath.Join(pgDir(t), "data")
	pgRun(t, pgBin+"pg_basebackup", "-D", second, "-h", host, "-p", port, "-U", "postgres", "-R", "-S", "s",
		"--no-sync", "-c", "fast")
	other, _ := startPostgres(t, second)
	standby := dial(other)
	must.Await(t, "the standby follows", time.Minute, func() bool {
		_, n, err := b.query("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
		return err == nil && n == "1"
	})
	for _, q := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, _, err := standby.query("%s", q); err != nil {
			t.Fatal(err)
		}
	}
	must.Await(t, "it is behind", time.Minute, func() bool {
		_, n, err := b.query("SELECT count(*) FROM pg_stat_replication")
		return err == nil && n == "0"
	})
	mustTake(t, b, "b", 0, true)
	primary.Process.Kill()
	primary.Wait()
	if _, _, err := standby.query("SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	mustTake(t, standby, "c", 0, true)
}

func TestRedisKeyAsLock(t *testing.T) {
	beside(t)
	addr, primary := startRedis(t)
	dial := func(addr string) *redisConn {
		t.Helper()
		c := must.Get(dialRedis(addr))(t)
		t.Cleanup(c.close)
		return c
	}
	a, b := dial(addr), dial(addr)
	takes := func(l otherLock, owner string) {
		t.Helper()
		must.Await(t, owner+" has the lock", time.Minute, func() bool {
			ok, err := l.take("job", owner, time.Hour)
			return ok && err == nil
		})
	}
	// The holder dies. The lock becomes free when its time to live, which the test shortens, is over.
	mustTake(t, a, "a", time.Hour, true)
	mustTake(t, b, "b", time.Hour, false)
	must.Get(a.do("PEXPIRE", "job", fmt.Sprint(shortTTL.Milliseconds())))(t)
	a.close()
	takes(b, "b")
	if ok, err := b.give("job", "b"); !ok || err != nil {
		t.Fatal(ok, err)
	}

	// The holder is paused for longer than the time to live. Another client gets the lock, and the first
	// holder learns of this only when it gives the lock back.
	a = dial(addr)
	mustTake(t, a, "a", shortTTL, true)
	takes(b, "b")
	must.That(t, !must.Get(a.give("job", "a"))(t), "the paused holder gives back what is another's")
	if ok, err := b.give("job", "b"); !ok || err != nil {
		t.Fatal(ok, err)
	}

	// The server fails over. The replication is asynchronous, so another client can take the same lock at the
	// replica that becomes the primary.
	way := startRelay(t, []string{addr})
	host, port, _ := net.SplitHostPort(way.addr())
	other, _ := startRedis(t, "--replicaof", host, port)
	replica := dial(other)
	must.Await(t, "the replica follows", time.Minute, func() bool {
		info, err := replica.do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	way.refuse(time.Hour)
	mustTake(t, b, "b", time.Hour, true)
	primary.Process.Kill()
	primary.Wait()
	must.Get(replica.do("REPLICAOF", "NO", "ONE"))(t)
	mustTake(t, replica, "c", time.Hour, true)
}

// holding is a program that holds the lock /job, with its output.
type holding struct {
	*exec.Cmd
	said must.Text
}

func (h *holding) says(what string) bool { return strings.Contains(h.said.String(), what) }

func startHolding(t *testing.T, servers string, args ...string) *holding {
	t.Helper()
	h := &holding{Cmd: exec.Command(args[0], args[1:]...)}
	h.Env = append(os.Environ(), "ZK="+servers, "ZLOCK_SERVERS="+servers)
	out, w := must.Get2(os.Pipe())(t)
	h.Stdout, h.Stderr = w, w
	if _, err := h.StdinPipe(); err != nil { // keeps the input open, because zlock hold ends with its input
		t.Fatal(err)
	}
	must.OK(t, h.Start())
	w.Close()
	go func() {
		defer out.Close()
		io.Copy(&h.said, out)
	}()
	t.Cleanup(func() {
		h.Process.Kill()
		h.Wait()
	})
	return h
}

// TestLocksOfSessions tries locks that last as long as a session: the holder dies, the holder is
// paused, and the server fails over. The locks are of Curator and of zlock, on zlockd and on ZooKeeper, with
// one server and with three.
func TestLocksOfSessions(t *testing.T) {
	beside(t)
	zlock := cluster.Zlock(t)
	for _, maker := range []struct {
		name string
		args func(seconds int) []string // arguments, with a session timeout
		held string                     // the program's output once it knows that it holds the lock
		lost string                     // the program's output once it knows that it has lost the lock
	}{
		{"zlock", func(seconds int) []string {
			return []string{zlock, "hold", "--session-timeout", fmt.Sprint(seconds, "s"), "/job"}
		}, "locked", "lost"},
		{"Curator", func(seconds int) []string {
			return append(javaDriver(t, "CuratorHold"), "/job", fmt.Sprint(seconds*1000))
		}, "held", "state LOST"},
	} {
		t.Run(maker.name, func(t *testing.T) {
			beside(t)
			g := startTarget(t, cluster.Options{Nodes: 3})
			if g.ensemble == nil {
				t.Skip("kills servers: unset ZLOCKD_STOCK_SERVERS")
			}
			c := must.Get(client.Dial(t.Context(), g.String()))(t)
			defer c.Close(context.Background())
			job := c.Mutex("/job")
			hold := func(seconds int) *holding {
				t.Helper()
				h := startHolding(t, g.String(), maker.args(seconds)...)
				must.Await(t, maker.name+" holds the lock", time.Minute, func() bool {
					q, err := c.Inspector().Inspect(t.Context(), "/job")
					return err == nil && len(q.Holders) > 0 && h.says(maker.held)
				})
				return h
			}
			// The holder dies. The lock becomes free when the holder's session is over.
			h := hold(6)
			h.Process.Kill()
			next := must.Get(job.Lock(t.Context()))(t)
			first := next.Token()
			must.OK(t, next.Unlock(t.Context()))

			// The holder is paused. Another client gets the lock, with a larger token, and the first holder
			// learns of this when it continues.
			h = hold(6)
			must.OK(t, h.Process.Signal(syscall.SIGSTOP))
			next = must.Get(job.Lock(t.Context()))(t)
			expect.That(t, next.Token() > first, "token %v after %v", next.Token(), first)
			h.Process.Signal(syscall.SIGCONT)
			must.Await(t, maker.name+" is told", time.Minute, func() bool { return h.says(maker.lost) })
			h.Process.Kill()
			must.OK(t, next.Unlock(t.Context()))

			// The server fails over. The holder keeps the lock for longer than a session timeout.
			h = hold(10)
			g.ensemble.WaitLeader().Kill()
			must.Await(t, "another leads", time.Minute, func() bool { return g.ensemble.Leader() != nil })
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if l, err := job.Lock(ctx); err == nil {
				t.Errorf("a second holder, token %v", l.Token())
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			expect.That(t, !h.says(maker.lost), "%s lost the lock", maker.name)
		})
	}
}

var figures = flag.Bool("figures", false,
	"measure the locks of docs/coming-from.md that need no ZooKeeper client")

// TestFiguresOfOtherLocks measures a database row and a Redis key in the same way as `go run
// ./test/bench/locks compare -waiters 0,10` measures other locks: one lock with one contender, and then with
// eleven. A contender that does not get the lock asks again after a pause.
func TestFiguresOfOtherLocks(t *testing.T) {
	if !*figures {
		t.Skip("measures on request: -figures")
	}
	const warm, duration, pause = time.Second, 5 * time.Second, time.Millisecond
	pg, _ := startPostgres(t, pgDir(t))
	redis, _ := startRedis(t)
	synced, _ := startRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	must.That(t, must.Get(dialPostgres(pg))(t).prepare() == nil, "no table")
	atRedis := func(addr string) func() (otherLock, error) {
		return func() (otherLock, error) { return dialRedis(addr) }
	}
	for _, s := range []struct {
		name string
		dial func() (otherLock, error)
	}{
		{"PostgreSQL, a row", func() (otherLock, error) { return dialPostgres(pg) }},
		{"Redis as installed", atRedis(redis)},
		{"Redis, appendfsync always", atRedis(synced)},
	} {
		for _, contenders := range []int{1, 11} {
			var took []time.Duration
			var mu sync.Mutex
			var inside, both atomic.Int64
			var wg sync.WaitGroup
			begun := time.Now()
			for i := range contenders {
				wg.Go(func() {
					l, err := s.dial()
					if err != nil {
						t.Error(err)
						return
					}
					defer l.close()
					owner := fmt.Sprint("owner", i)
					for time.Since(begun) < warm+duration {
						from := time.Now()
						ok, err := l.take("figures", owner, time.Minute)
						for ; !ok && err == nil && time.Since(begun) < warm+duration; ok, err = l.take("figures", owner,
							time.Minute) {
							time.Sleep(pause)
						}
						if !ok {
							expect.OK(t, err)
							return
						}
						d := time.Since(from)
						if inside.Add(1) != 1 {
							both.Add(1)
						}
						inside.Add(-1)
						if ok, err := l.give("figures", owner); !ok || err != nil {
							t.Error(ok, err)
							return
						}
						if from.Sub(begun) > warm {
							mu.Lock()
							took = append(took, d)
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
			must.That(t, len(took) != 0 && both.Load() <= 0,
				"%s: %d cycles, %d with two inside", s.name, len(took), both.Load())
			slices.Sort(took)
			t.Logf("%-26s %2d contenders: %6.0f cycles/s, taken after %.2f ms (median), %.2f ms (p99)", s.name,
				contenders,
				float64(len(took))/duration.Seconds(), ms(took[len(took)/2]), ms(took[len(took)*99/100]))
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
