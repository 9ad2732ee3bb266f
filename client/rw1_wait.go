package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// rw1State is what a client remembers between attempts: how far the server's
// clock is, as seen in the stamps of nodes it made. The estimate is never ahead.
type rw1State struct {
	mu     sync.Mutex
	known  bool
	origin time.Time
	offset time.Duration // server time at origin, since its epoch
}

// observe notes a server time of this moment or before.
func (s *rw1State) observe(ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.known {
		s.known, s.origin = true, now
		s.offset = time.Duration(ms) * time.Millisecond
		return
	}
	s.offset = max(s.offset, time.Duration(ms)*time.Millisecond-now.Sub(s.origin))
}

// since returns how long ago a server time was, false if that is not known.
func (s *rw1State) since(ms int64) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return 0, false
	}
	return s.offset + time.Since(s.origin) - time.Duration(ms)*time.Millisecond, true
}

// rw1Waits remembers since when queued writers wait.
type rw1Waits struct{ since map[rw1Node]int64 }

func (r *rw1Waits) put(n rw1Node, ms int64) {
	if r.since == nil {
		r.since = map[rw1Node]int64{}
	}
	r.since[n] = ms
}

// oldestWriter returns the queued writer that waits longest.
func (v *rw1View) oldestWriter() *rw1Node {
	var oldest *rw1Node
	for i := range v.nodes {
		if n := &v.nodes[i]; n.kind == rw1QueueWrite && (oldest == nil || before(n.seq, oldest.seq)) {
			oldest = n
		}
	}
	return oldest
}

// overdue reports whether readers have overtaken the oldest writer for longer
// than the bound. It only ever errs towards no.
func (w *rw1Waiter) overdue(ctx context.Context, v *rw1View) (bool, error) {
	left, ok, err := w.writerLeft(ctx, v)
	return ok && left <= 0, err
}

// writerLeft is the time until the oldest queued writer is overdue.
func (w *rw1Waiter) writerLeft(ctx context.Context, v *rw1View) (time.Duration, bool, error) {
	n := v.oldestWriter()
	if n == nil {
		return 0, false, nil
	}
	ms, ok := w.clock.since[*n]
	if !ok {
		st, err := w.c.exists(ctx, w.e, join(w.a.dir, n.name(true)))
		if err != nil || st == nil {
			if errors.Is(err, zk.ErrNoAuth) {
				err = nil
			}
			return 0, false, err
		}
		ms = st.Ctime
		w.clock.put(*n, ms)
	}
	waited, ok := w.c.rw1.since(ms)
	return w.dir.rec.writerBound() - waited, ok, nil
}

// awaitStep waits for what the decision named. Any wake leads to another look; an
// event alone grants nothing.
func (w *rw1Waiter) awaitStep(ctx context.Context, step rw1Step) error {
	w.waited = true
	path := join(w.a.dir, step.on.name(true))
	var timer <-chan time.Time
	if step.timer {
		left, ok, err := w.writerLeft(ctx, w.dir.view(w.a.cfg.policy))
		if err != nil {
			return err
		}
		if ok {
			t := time.NewTimer(max(left, 0) + time.Millisecond)
			defer t.Stop()
			timer = t.C
		}
	}
	var record <-chan struct{}
	if step.data && w.dir.watch != nil {
		record = w.dir.watch.C()
	}
	var own <-chan struct{}
	if w.queued && w.ownW != nil {
		own = w.ownW.C()
	}
	var safety <-chan time.Time
	if d := w.c.opt.safety; d > 0 {
		t := time.NewTimer(d/2 + rand.N(d))
		defer t.Stop()
		safety = t.C
	}
	defer w.brk.stop()
	for {
		d, pw, gone, err := w.watchNode(ctx, path)
		if gone || err != nil {
			return err
		}
		if w.a.cfg.breakable && w.queued && step.on.kind.hold() {
			if err := w.brk.look(ctx, &w.waiter, path, d); err != nil {
				return err
			}
		}
		select {
		case <-pw.C():
			if pw.event() != zk.EventNodeDataChanged {
				// Deleted, or the connection is a new one: look at everything.
				w.dir.forget(pw.event() != zk.EventNodeDeleted)
				return nil
			}
		case <-record:
			return nil
		case <-timer:
			return nil
		case <-own:
			// A wish, a change of data or the removal of the own node.
			return w.lookAtOwn(ctx)
		case <-safety:
			w.dir.forget(true)
			return nil
		case <-w.brk.due():
		case <-w.e.gone:
			return &requeueError{ErrSessionExpired}
		case <-ctx.Done():
			return ctxErr(ctx)
		case <-w.c.drain:
			return ErrClosed
		}
	}
}

// forget makes the next look read the record again.
func (d *rw1Dir) forget(all bool) {
	if all {
		d.fresh = false
	}
}

// rw1Delay is a lock delay being sat out: since when a mark was seen whose owner
// is dead.
type rw1Delay struct {
	mark  rw1Gate
	since time.Time
}

// lockDelay holds a grant back for the delay if the mark's owner went away without
// unlocking. It reports whether there is to be another look.
func (w *rw1Waiter) lockDelay(ctx context.Context) (bool, error) {
	v := w.dir.view(w.a.cfg.policy)
	dead := v.gate.kind != rw1GateNone && v.gate.owner != w.id && v.gateOwner() == nil
	if w.a.cfg.lockDelay == 0 || !dead {
		return false, nil
	}
	if w.a.try && w.delay.since.IsZero() {
		return true, ErrNotAcquired
	}
	if w.delay.mark != v.gate {
		w.delay = rw1Delay{v.gate, time.Now()}
		w.c.opt.log.Info("last holder did not unlock, waiting", "path", w.a.path, "delay", w.a.cfg.lockDelay)
	}
	left := w.a.cfg.lockDelay - time.Since(w.delay.since)
	if left <= 0 {
		if w.reads() {
			return true, w.dir.setGate(ctx, rw1Gate{}) // so that the next reader need not wait again
		}
		return false, nil
	}
	t := time.NewTimer(left)
	defer t.Stop()
	var own <-chan struct{}
	if w.queued && w.ownW != nil {
		own = w.ownW.C()
	}
	select {
	case <-t.C:
	case <-w.dir.watch.C():
	case <-own:
		return true, w.lookAtOwn(ctx)
	case <-w.e.gone:
		return true, &requeueError{ErrSessionExpired}
	case <-ctx.Done():
		return true, ctxErr(ctx)
	case <-w.c.drain:
		return true, ErrClosed
	}
	return true, nil
}
