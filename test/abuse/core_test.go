//go:build linux

package abuse

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// core is a server without a log: one goroutine applies what clients propose. It measures the processor time
// of each hold of the state lock, except holds for the innocent client.
type core struct {
	srv   *clients.Server
	addr  string
	queue chan proposal

	mu    sync.RWMutex // the state lock
	state *state.State
	now   proposal // the proposal that is being applied

	innocent atomic.Int64 // id of the innocent client's session

	figures sync.Mutex
	holds
}

// The type holds is the cost of holds of the state lock.
type holds struct {
	longest, sum time.Duration // processor time of the longest hold, and of all holds
	steps        int           // steps of the request that took the most steps
}

type proposal struct {
	r state.Request
	w state.Waiter
}

// newCore starts a server on loopback, until the test ends.
func newCore(t testing.TB) *core {
	c := &core{state: state.New("abuse"), queue: make(chan proposal, 64)}
	var err error
	if c.srv, err = clients.New(options.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, c.state.Apply(state.Founding([]config.Server{{ID: 1, Peer: "127.0.0.1:1", Voter: true}}, 1),
		c))
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c.addr = ln.Addr().String()
	c.srv.Use(c)
	c.srv.Serving(true)
	var wg sync.WaitGroup
	wg.Go(func() { c.srv.Serve(ln) })
	wg.Go(c.run)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		close(c.queue)
		wg.Wait()
	})
	return c
}

// thread() returns the processor time that this thread has used.
func thread() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// measuring() returns the processor time that a call of thread() itself takes. hold() subtracts this time,
// because it is longer than a short read.
var measuring = sync.OnceValue(func() time.Duration {
	least := time.Hour
	for range 1000 {
		began := thread()
		least = min(least, thread()-began)
	}
	return least
})

// hold() runs f under the state lock and counts its cost.
func (c *core) hold(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := thread()
	f()
	took := thread() - began - measuring()
	c.figures.Lock()
	defer c.figures.Unlock()
	c.longest = max(c.longest, took)
	c.sum += took
}

// take() returns the costs since the last call of take().
func (c *core) take() holds {
	c.figures.Lock()
	defer c.figures.Unlock()
	h := c.holds
	c.holds = holds{}
	return h
}

// run() applies each proposed request as an entry of its own.
func (c *core) run() {
	for c.now = range c.queue {
		bl := entries.Block{Count: 1, Requests: c.now.r.Append(nil)}
		entry := bl.Append(entries.Begin(nil, 0))
		entries.Seal(entry, time.Now().UnixMilli())
		apply := func() {
			if err := c.state.Apply(entry, c); err != nil {
				panic(err)
			}
		}
		c.mu.Lock()
		if id := c.innocent.Load(); id != 0 && id == c.now.r.Session {
			apply()
		} else {
			c.hold(apply)
		}
		c.mu.Unlock()
		c.srv.Applied()
	}
}

func (c *core) Propose(r state.Request, w state.Waiter) error {
	r.Body = bytes.Clone(r.Body)
	c.queue <- proposal{r, w}
	return nil
}

func (c *core) View(f func(*state.State)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.hold(func() { f(c.state) })
}

func (c *core) Zxid() (zxid int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.Zxid()
}

func (c *core) WaitZxid(context.Context, int64) bool { return true }
func (c *core) PingOK(time.Duration) bool            { return true }

func (c *core) Events(zxid int64, events []tree.Event) { c.srv.Events(zxid, events) }
func (c *core) Ended(e *state.Ending)                  { c.srv.SessionEnded(e) }
func (c *core) Opened(uint32, int64, uint32)           {}
func (c *core) Replaced()                              {}

func (c *core) Attached(s *session.Session, created bool) {
	if !created {
		c.srv.SessionMoved(s.ID, s.Gen)
	}
}

func (c *core) Outcome(_, _ uint32, _ uint64, o *state.Outcome) {
	c.figures.Lock()
	if c.now.r.Op != jute.OpCloseSession { // the limit of steps does not hold for the end of a session
		c.steps = max(c.steps, o.Steps)
	}
	c.figures.Unlock()
	if c.now.w != nil {
		c.now.w.Done(o, c.state)
	}
}
