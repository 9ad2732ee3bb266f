// Package entrance says whether a server lets clients in, and which state serves them.
package entrance

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// Replica is the interface to the replicated state; a raftfsm.Node implements it.
type Replica interface {
	// Propose proposes a request, whose body it copies, and tells the waiter its outcome. It blocks while too
	// many requests are under way. If it returns an error, there will be no outcome, and the caller closes the
	// connection.
	Propose(state.Request, state.Waiter) error
	// View runs f under the read side of the state lock. f must not block.
	View(f func(*state.State))
	// WaitZxid waits until zxid has been applied here.
	WaitZxid(ctx context.Context, zxid int64) bool
	// Zxid is the last zxid applied here.
	Zxid() int64
	// PingOK reports whether the leader has heard this server recently enough to answer the ping of a session
	// with this timeout.
	PingOK(timeout time.Duration) bool
}

// Entrance is the entrance of one server. Any goroutine may use it. The zero value is shut.
type Entrance struct {
	replica  atomic.Pointer[Replica] // the state that clients read; nil: no state yet
	used     atomic.Bool             // Use has set `replica`
	serving  atomic.Bool             // the replica lets clients be served
	readOnly atomic.Bool             // the replica lets clients only read; `serving` is then false

	mu      sync.Mutex
	changed chan struct{} // closed when the result of Open may have changed; nil: no caller waits
}

// Use sets the state that serves clients. Call it once.
func (e *Entrance) Use(r Replica) {
	e.replica.Store(&r)
	e.used.Store(true)
	e.news()
}

// UseMeanwhile sets the state that clients may read before Use is called.
func (e *Entrance) UseMeanwhile(r Replica) { e.replica.Store(&r) }

// Replica returns the state that clients read. It returns nil until this server has such a state.
func (e *Entrance) Replica() Replica {
	if r := e.replica.Load(); r != nil {
		return *r
	}
	return nil
}

// SetServing says whether the replica lets clients be served.
func (e *Entrance) SetServing(serve bool) {
	e.serving.Store(serve)
	e.news()
}

// SetReadOnly says whether the replica lets clients read without a leader.
func (e *Entrance) SetReadOnly(on bool) { e.readOnly.Store(on) }

// Open reports whether clients are served.
func (e *Entrance) Open() bool { return e.serving.Load() && e.used.Load() }

// ReadOnly reports whether clients may only read.
func (e *Entrance) ReadOnly() bool { return e.readOnly.Load() }

// Wait waits until the entrance is open, or until the server stops.
func (e *Entrance) Wait(ctx context.Context, stops <-chan struct{}) error {
	for {
		e.mu.Lock()
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		changed := e.changed
		e.mu.Unlock()
		if e.Open() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-stops:
			return net.ErrClosed
		}
	}
}

// news() wakes all waiting callers, because the result of Open may have changed.
func (e *Entrance) news() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}
