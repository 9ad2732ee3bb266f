package fence

import (
	"context"
	"fmt"
	"sync"
)

// Gate admits the present holders of a lock to a resource and refuses former ones. The zero value is ready
// and keeps its tokens in memory. It is safe for concurrent use and must not be copied.
type Gate struct {
	// Store keeps the highest tokens. If Store is nil, the gate keeps them in memory. Set it before the first
	// use.
	Store Store

	memory MemoryStore

	mu   sync.Mutex
	busy map[string]*busy // resources for which a Do runs or waits
}

// NewGate returns a gate that keeps the highest tokens in s.
func NewGate(s Store) *Gate { return &Gate{Store: s} }

// Admit applies the rules of this package to one access. It returns nil if the access is allowed, [ErrStale]
// if the gate has seen a later hold, and [ErrInvalid] for a token that is not valid or a mode whose tokens
// have no order. A later holder may get in between Admit and the write; [Gate.Do] does both in one step.
func (g *Gate) Admit(resource string, m Mode, t Token) error {
	return g.AdmitContext(context.Background(), resource, m, t)
}

// AdmitContext is [Gate.Admit] for stores that need a context.
func (g *Gate) AdmitContext(ctx context.Context, resource string, m Mode, t Token) error {
	return admit(ctx, g.store(), resource, m, t)
}

func (g *Gate) store() Store {
	if g.Store != nil {
		return g.Store
	}
	return &g.memory
}

func admit(ctx context.Context, s Store, resource string, m Mode, t Token) error {
	if !t.Valid() {
		return fmt.Errorf("%w token %d", ErrInvalid, int64(t))
	}
	switch m {
	case Exclusive:
		fresh, err := s.Raise(ctx, resource, t)
		if err != nil {
			return fmt.Errorf("fence: raise token of %s: %w", resource, err)
		}
		if !fresh {
			return stale(resource, m, t)
		}
		return nil
	case Shared:
		highest, err := s.Load(ctx, resource)
		if err != nil {
			return fmt.Errorf("fence: load token of %s: %w", resource, err)
		}
		if t < highest {
			return stale(resource, m, t)
		}
		return nil
	default:
		return fmt.Errorf("%w mode for a gate: the tokens of mode %s have no order", ErrInvalid, m)
	}
}

func stale(resource string, m Mode, t Token) error {
	return fmt.Errorf("%w %s (%s) for %s", ErrStale, t, m, resource)
}

// Do admits the access and runs f. For all other calls of Do on this gate, both are one step: once the gate
// admits a later exclusive hold, no f of an earlier hold runs any longer. Calls of the same hold, and calls
// of readers, run in parallel.
//
// A later hold cancels the contexts of the functions f that still run, and waits until they return. If the
// ctx of the later hold's call ends first, that call returns the context's error; the gate still refuses the
// earlier holds.
//
// With a [FileStore], all gates on the machine that use the same directory act like one gate, with two
// differences. A later hold waits for the f of another process, but does not cancel it. The calls of one
// exclusive hold run one after another. f must not call Do.
func (g *Gate) Do(ctx context.Context, resource string, m Mode, t Token,
	f func(context.Context) error) error {
	return g.do(ctx, resource, m, t, func(ctx context.Context, _ bool) error { return f(ctx) })
}

// do() is like Do, and also tells f whether the call had to wait for earlier holds.
func (g *Gate) do(ctx context.Context, resource string, m Mode, t Token,
	f func(ctx context.Context, waited bool) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := g.enter(resource)
	defer g.leave(resource, b)

	if err := g.AdmitContext(ctx, resource, m, t); err != nil {
		return err
	}
	waited := false
	b.mu.Lock()
	if m == Exclusive && t > b.since {
		b.since = t
	}
	for {
		// The gate may have admitted a later hold since it admitted this call, or during the wait.
		if t < b.since {
			b.mu.Unlock()
			return stale(resource, m, t)
		}
		older := b.olderThan(m, t)
		if older == nil {
			break
		}
		waited = true
		older.cancel()
		b.mu.Unlock()
		select {
		case <-older.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.mu.Lock()
	}
	fctx, cancel := context.WithCancel(ctx)
	r := &run{mode: m, token: t, cancel: cancel, done: make(chan struct{})}
	b.runs[r] = struct{}{}
	b.mu.Unlock()

	defer func() {
		cancel()
		b.mu.Lock()
		delete(b.runs, r)
		b.mu.Unlock()
		close(r.done)
	}()
	unlock, blocked, err := g.exclude(fctx, resource, m, t)
	switch {
	case err != nil && ctx.Err() == nil && fctx.Err() != nil:
		return stale(resource, m, t) // a later hold ended the wait
	case err != nil:
		return err
	}
	defer unlock()
	return f(fctx, waited || blocked)
}

// excluder is a store for several processes. It can prevent the other processes from running f.
type excluder interface {
	exclude(ctx context.Context, resource string, m Mode) (unlock func(), waited bool, err error)
}

// exclude() blocks other processes. It then checks the token again, because a later hold may have come and
// gone during the wait.
func (g *Gate) exclude(
	ctx context.Context, resource string, m Mode, t Token,
) (unlock func(), waited bool, err error) {
	s, ok := g.Store.(excluder)
	if !ok {
		return func() {}, false, nil
	}
	unlock, waited, err = s.exclude(ctx, resource, m)
	if err != nil {
		return nil, false, err
	}
	if err := g.AdmitContext(ctx, resource, m, t); err != nil {
		unlock()
		return nil, false, err
	}
	return unlock, waited, nil
}

// busy has the running calls of Do on one resource.
type busy struct {
	users int // how many calls are inside Do; guarded by Gate.mu

	mu    sync.Mutex
	since Token // the highest exclusive token in any call inside Do
	runs  map[*run]struct{}
}

// run is one call of f that has not returned.
type run struct {
	mode   Mode
	token  Token
	cancel context.CancelFunc
	done   chan struct{}
}

// olderThan returns a running call that must end before a call with mode m and token t may start.
func (b *busy) olderThan(m Mode, t Token) *run {
	for r := range b.runs {
		if r.token < t && (m == Exclusive || r.mode == Exclusive) {
			return r
		}
	}
	return nil
}

func (g *Gate) enter(resource string) *busy {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.busy[resource]
	if b == nil {
		b = &busy{runs: make(map[*run]struct{})}
		if g.busy == nil {
			g.busy = make(map[string]*busy)
		}
		g.busy[resource] = b
	}
	b.users++
	return b
}

func (g *Gate) leave(resource string, b *busy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.users--; b.users == 0 {
		delete(g.busy, resource)
	}
}
