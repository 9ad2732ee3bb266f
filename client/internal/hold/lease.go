package hold

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
)

// Lease is one lease of a hold, until the lease is unlocked or lost. Package client exports it as its own
// Lease and documents the methods.
type Lease struct {
	h      *Hold
	outer  *Lease // the lease whose context the caller used to lock; nil: none
	ctx    context.Context
	cancel context.CancelCauseFunc

	lost chan struct{} // closed when the lease is lost
	// has room for one request to give the lock back; a second one is not delivered
	revoked chan recipe.Revocation

	// Guarded by h.mu.
	mode     fence.Mode
	unlocked bool
	cause    *loss // why the lease was lost before Unlock; nil: it was not lost
}

func newLease(ctx context.Context, h *Hold, mode fence.Mode) *Lease {
	l := &Lease{h: h, mode: mode, outer: leaseIn(ctx), lost: make(chan struct{}),
		revoked: make(chan recipe.Revocation, 1)}
	own := context.WithoutCancel(ctx) // ctx limits the wait, not the hold
	l.ctx, l.cancel = context.WithCancelCause(l.mark(own))
	if l.outer != nil && l.outer.h != h {
		// The work under this lock is also work under the outer lock, so it must end with the outer lease.
		end, cancel := l.outer.ctx, l.cancel
		stop := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
		l.cancel = func(cause error) {
			stop()
			cancel(cause)
		}
	}
	return l
}

// Mark returns a context in which the lease counts as held. It has the lease's task.
func (l *Lease) Mark(ctx context.Context) context.Context {
	return Task(l.mark(ctx), TaskOf(l.ctx))
}

func (l *Lease) mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

type leaseKey struct{}

// leaseIn returns the innermost lease under which ctx runs. Goroutines have no identity, so only the context
// can say whether its user already holds a lock.
func leaseIn(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// addLease returns one more lease of the hold. It waits for a change of the mode, and fails if the
// hold does not cover the mode, or is over.
func (h *Hold) addLease(ctx context.Context, mode fence.Mode) (*Lease, error) {
	l := newLease(ctx, h, mode)
	h.s.named.add(l)
	h.mu.Lock()
	for h.changing != nil && !h.over && ctx.Err() == nil {
		h.mu.Unlock()
		h.awaitChange(ctx)
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	covered := mode == h.mode || mode == fence.Shared
	if h.over || h.changing != nil || !covered {
		h.s.named.remove(l)
		l.cancel(ErrNotHeld)
		return nil, ErrNotHeld
	}
	if h.leases = append(h.leases, l); !h.granted {
		h.granted = true
		h.tell(Event{Kind: EventGranted, Waited: time.Since(h.g.Asked)})
	}
	if h.revoked != nil {
		l.revoked <- *h.revoked
	}
	return l, nil
}

// writes() reports whether a lease other than l needs the write lock. The caller holds h.mu.
func (h *Hold) writes(l *Lease) bool {
	return slices.ContainsFunc(h.leases, func(x *Lease) bool { return x != l && x.mode == fence.Exclusive })
}

// endUnlocked ends the contexts of leases that were unlocked before the leases nested in them. The caller
// holds h.mu.
func (h *Hold) endUnlocked(cause error) {
	for _, l := range h.unlocked {
		l.cancel(cause)
	}
	h.unlocked = nil
}

// Context returns the context for the work under the lock.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost returns a channel that closes when the lease is lost. It stays open after Unlock.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held. Otherwise it returns the loss, or ErrNotHeld after Unlock. It
// reads the clock, so it is right even in the first instruction after a pause.
func (l *Lease) Err() error {
	l.h.checkNow()
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	switch {
	case l.cause != nil:
		return l.cause.err
	case l.unlocked:
		return ErrNotHeld
	}
	return nil
}

// Epoch returns the session that the lease belongs to.
func (l *Lease) Epoch() *session.Epoch { return l.h.g.Epoch }

// Loss returns how the lease was lost. It returns false if the lease was not lost.
func (l *Lease) Loss() (Loss, bool) {
	_ = l.Err() // looks at the clock
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	if l.cause == nil {
		return Loss{}, false
	}
	return l.cause.Loss, true
}

// Until returns the time at which the lease ends if the client does not hear from the server.
func (l *Lease) Until() time.Time {
	if l.Err() != nil {
		return l.h.s.Keeper.Now().Wall.Add(-time.Nanosecond)
	}
	return l.h.validUntil()
}

// Path returns the path of the lock. For a lease of several locks, this is the path of the first one.
func (l *Lease) Path() string { return l.h.g.Path }

// Mode returns how the lock is held.
func (l *Lease) Mode() fence.Mode {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.mode
}

// Token returns the number of the hold.
func (l *Lease) Token() fence.Token {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.token
}

// Sequencers returns a sequencer for each node of the hold. A lease of several locks has several sequencers.
func (l *Lease) Sequencers() []fence.Sequencer {
	h := l.h
	if h.g.Parts != nil {
		var all []fence.Sequencer
		for _, p := range h.g.Parts {
			all = append(all, p.Sequencers()...)
		}
		return all
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []fence.Sequencer
	for _, n := range h.nodes {
		if n.Place {
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(n.Path, h.g.Path), "/")
		all = append(all, fence.Sequencer{Path: h.g.Path, Node: rel, Mode: l.mode, Token: h.token})
	}
	return all
}

// Slots returns the numbers of a lease's permits. For several locks it returns the numbers of all semaphores
// among them.
func (l *Lease) Slots() ([]int, error) {
	h := l.h
	if h.g.Parts != nil {
		var all []int
		for _, p := range h.g.Parts {
			slots, err := p.Slots()
			if err != nil {
				return nil, err
			}
			all = append(all, slots...)
		}
		return all, nil
	}
	if h.g.Unnumbered != nil {
		return nil, ErrorAt(h.g.Path, h.g.Unnumbered)
	}
	var all []int
	for _, n := range h.nodesNow() {
		if slot := recipe.SlotOf(recipe.Base(n.Path)); slot > 0 {
			all = append(all, slot)
		}
	}
	return all, nil
}

// Nodes returns the paths of all nodes of the hold.
func (l *Lease) Nodes() []string { return pathsOf(l.h.nodesNow()) }

// Asked delivers the first request to give the lock back.
func (l *Lease) Asked() <-chan recipe.Revocation { return l.revoked }
