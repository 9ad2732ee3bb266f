package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// policyClock estimates the server's clock, for all attempts of a client, from the stamps of nodes
// that the client made. The estimate is never ahead.
type policyClock struct {
	mu     sync.Mutex
	known  bool
	origin time.Time
	offset time.Duration // server time at origin, since its epoch
}

// observe takes in a server time of this moment or before.
func (s *policyClock) observe(ms int64) {
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

// since returns how long ago a server time was, and false if the clock is not known.
func (s *policyClock) since(ms int64) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return 0, false
	}
	return s.offset + time.Since(s.origin) - time.Duration(ms)*time.Millisecond, true
}

// writerLeft returns the time until the oldest queued writer is overdue, because readers have
// overtaken it for longer than the bound. It never returns less than the true time.
func (w *policyWaiter) writerLeft(ctx context.Context, v *recipe.PolicyView) (time.Duration, bool, error) {
	n := v.OldestWriter()
	if n == nil {
		return 0, false, nil
	}
	ms, ok := w.queuedAt[n.ID]
	if !ok {
		st, err := w.e.conn.Exists(ctx, recipe.Join(w.a.dir, n.Name(true)))
		if err != nil || st == nil {
			if errors.Is(err, zk.ErrNoAuth) {
				err = nil
			}
			return 0, false, err
		}
		ms = st.Ctime
		w.queuedAt[n.ID] = ms
	}
	waited, ok := w.c.policyClock.since(ms)
	return w.dir.rec.WriterBound() - waited, ok, nil
}

// awaitStep waits for what the decision names. Any wake leads to another look; an event alone
// grants nothing.
func (w *policyWaiter) awaitStep(ctx context.Context, step recipe.Step) error {
	var also wakers
	if step.Timer {
		left, ok, err := w.writerLeft(ctx, w.dir.view(w.a.cfg.policy))
		if err != nil {
			return err
		}
		if ok {
			also.timer = time.After(max(left, 0) + time.Millisecond)
		}
	}
	if step.Data {
		also.fired = firedOf(w.dir.watch)
	}
	holder := w.a.cfg.limit.Break && step.On.Kind.Hold()
	_, err := w.await(ctx, recipe.Join(w.a.dir, step.On.Name(true)), 1, holder, also)
	return err
}

// policyDelay is a lock delay under way: a mark whose owner is dead, and since when this client
// sees it.
type policyDelay struct {
	mark  recipe.Door
	since time.Time
}

// lockDelay delays a grant if the mark's owner went away without unlocking. It reports whether the
// attempt must look again.
func (w *policyWaiter) lockDelay(ctx context.Context) (bool, error) {
	v := w.dir.view(w.a.cfg.policy)
	dead := v.Door.Kind != recipe.DoorOpen && v.Door.Owner != w.id && v.DoorOwner() == nil
	if w.a.cfg.lockDelay == 0 || !dead {
		return false, nil
	}
	if w.a.try && w.delay.since.IsZero() {
		return true, ErrNotAcquired
	}
	if w.delay.mark != v.Door {
		w.delay = policyDelay{v.Door, time.Now()}
		w.c.opt.log.Info("last holder did not unlock, waiting", "path", w.a.path, "delay", w.a.cfg.lockDelay)
	}
	left := w.a.cfg.lockDelay - time.Since(w.delay.since)
	if left <= 0 {
		if w.reads() {
			return true, w.dir.setDoor(ctx, recipe.Door{}) // so that the next reader need not wait again
		}
		return false, nil
	}
	if w.queued {
		if err := w.watch(ctx); err != nil {
			return true, err
		}
	}
	return true, w.e.rest(ctx, time.After(left), w.dir.watch.Fired(), firedOf(w.own))
}
