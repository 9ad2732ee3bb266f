package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Hop is a place that a request has passed on its way through this server.
type Hop struct {
	At    time.Time
	Where string
}

// ErrTracing is returned while another request is followed.
var ErrTracing = errors.New("another request is being followed; ask again when that has ended")

// Trace follows one request through this server, from its connection to the log
// and back: the next that the session asks for here, or with session 0 one of
// this server's own, which changes nothing. One is followed at a time; while
// none is, all that this costs is to look that there is none. With an error come
// the hops so far.
func (n *Node) Trace(ctx context.Context, session int64) ([]Hop, error) {
	t := &trace{n: n, session: session, ended: make(chan struct{})}
	if !n.fsm.stream.trace.CompareAndSwap(nil, t) {
		return nil, ErrTracing
	}
	defer n.fsm.stream.trace.Store(nil)
	n.disk.OnStored(t.stored)
	defer n.disk.OnStored(nil)
	if session == 0 {
		go t.own() // it may block while too much is under way
	}
	select {
	case <-t.ended:
		return t.list(), nil
	case <-n.ctx.Done():
		return t.list(), ErrClosed
	case <-ctx.Done():
	}
	list := t.list()
	if len(list) == 0 {
		return nil, fmt.Errorf("session 0x%x asked for no change here in this time", session)
	}
	return list, errors.New("the request went no further in this time")
}

// trace is one request being followed. Who passes it tells it, from goroutines
// of all kinds, and under locks: it takes none but its own. The methods that are
// called whether or not there is a trace take nil for none.
type trace struct {
	n       *Node
	session int64
	ended   chan struct{} // closed when the request is through

	mu     sync.Mutex
	hops   []Hop
	waiter *traced // of the request; nil: it has not come yet
	stage  stage
	over   bool  // nothing is added any more
	stores []put // the newest entries of this server's log

	entry applying // owned by who applies the log
}

// stage is how far the request is before the log has it.
type stage uint8

const (
	inStream stage = iota
	inBlock        // taken from the stream
	onItsWay       // in an entry, or sent to the leader
)

// put says when entries were in this server's log.
type put struct {
	last  uint64
	where string
	at    time.Time
}

const keepPuts = 64

// applying is an entry on its way through fsm.Apply.
type applying struct {
	index                  uint64
	handed, durable, begun time.Time
}

// mark adds a hop. The trace is locked.
func (t *trace) mark(at time.Time, where string, args ...any) {
	if !t.over {
		t.hops = append(t.hops, Hop{at, fmt.Sprintf(where, args...)})
	}
}

// list ends the trace and returns what is known.
func (t *trace) list() []Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	slices.SortStableFunc(t.hops, func(a, b Hop) int { return a.At.Compare(b.At) })
	return t.hops
}

// last adds the last hop.
func (t *trace) last(where string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.mark(time.Now(), where, args...)
		t.over = true
		close(t.ended)
	}
}

// own sends a request of this server's own on its way.
func (t *trace) own() {
	r := state.Request{Op: state.OpBarrier}
	if err := t.n.fsm.stream.put(&r, t.follow(&r, nil)); err != nil {
		t.last("refused: %v", err)
	}
}

// follow begins with a request if it is the one that is waited for, and returns
// who is to wait for its outcome.
func (t *trace) follow(r *state.Request, w state.Waiter) state.Waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.session == 0
	if t.over || t.waiter != nil || r.Session != t.session || own != (w == nil) {
		return w
	}
	t.waiter = &traced{t, w}
	if a, ok := w.(arrival); ok {
		t.mark(a.Arrived(), "its last byte was read from the connection")
	}
	what := r.Op.String()
	if own {
		what = "an empty request"
	}
	t.mark(time.Now(), "%s, %d bytes, goes into this server's stream", what, len(r.Body))
	return t.waiter
}

// taken is told which requests a reader has taken from the stream, which is
// locked.
func (t *trace) taken(bl *state.Block, of []pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiter == nil {
		return
	}
	for i := range of {
		if of[i].waiter == state.Waiter(t.waiter) {
			t.mark(time.Now(), "taken as number %d of the stream, in a block of %d", bl.First+uint64(i), bl.Count)
			t.stage = inBlock
		}
	}
}

// goes is told what is given to raft or sent to the leader: the first after the
// request was taken has it in it.
func (t *trace) goes(where string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == inBlock {
		t.stage = onItsWay
		t.mark(time.Now(), where, args...)
	}
}

// stored is told of entries that this server's log has taken.
func (t *trace) stored(last uint64, durable bool) {
	p := put{last, "in this server's log, written and synced", time.Now()}
	if !durable {
		p.where = "in this server's log, to be written while it is sent"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.stores) == keepPuts {
		t.stores = append(t.stores[:0], t.stores[1:]...)
	}
	t.stores = append(t.stores, p)
}

// handed, durable and begun are the steps of fsm.Apply before the state's own.
func (t *trace) handed(index uint64) {
	if t != nil {
		t.entry = applying{index: index, handed: time.Now()}
	}
}

func (t *trace) durable() {
	if t != nil {
		t.entry.durable = time.Now()
	}
}

func (t *trace) begun() {
	if t != nil {
		t.entry.begun = time.Now()
	}
}

// applied adds what the entry has passed that the request turned out to be in.
func (t *trace) applied(o *state.Outcome) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.entry
	if e.handed.IsZero() {
		return // the trace began in the middle of it
	}
	if i := slices.IndexFunc(t.stores, func(p put) bool { return p.last >= e.index }); i >= 0 {
		t.mark(t.stores[i].at, "%s: entry %d", t.stores[i].where, e.index)
	}
	t.mark(e.handed, "a majority has it: raft hands it over to be applied")
	t.mark(e.durable, "it is on this server's disk")
	t.mark(e.begun, "the state is locked")
	code := "OK"
	if o.Code != jute.OK {
		code = o.Code.Error()
	}
	t.mark(now, "applied: %s, zxid 0x%x, events in their outboxes", code, o.Zxid)
}

// traced stands before a request's waiter. It is how the request is known in the
// stream, where it has no name.
type traced struct {
	t *trace
	w state.Waiter // nil: nobody else waits
}

// arrival is a waiter who knows when its request came in.
type arrival interface{ Arrived() time.Time }

// sender is a waiter who sends the outcome on.
type sender interface {
	// WhenSent has f called once, when the operating system has everything that
	// is to be sent by now. f neither blocks nor calls back.
	WhenSent(f func())
}

// Done implements state.Waiter.
func (w *traced) Done(o *state.Outcome) {
	if o.Unknown {
		w.t.last("its outcome will never be known here")
	} else {
		w.t.applied(o)
	}
	if w.w == nil {
		w.t.last("its outcome is told")
		return
	}
	w.w.Done(o)
	s, ok := w.w.(sender)
	if !ok {
		w.t.last("its outcome is told")
		return
	}
	w.t.mu.Lock()
	w.t.mark(time.Now(), "its reply is in the outbox of its connection")
	w.t.mu.Unlock()
	s.WhenSent(func() { w.t.last("the operating system has the reply") })
}
