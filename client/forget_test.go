package client

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/must"
)

// A client that lives long keeps nothing of calls and leases that have ended.
func TestCallsAreForgotten(t *testing.T) {
	t.Parallel()
	shared(t)
	c := dial(t)
	holding := func(ctx context.Context, lock taker, use func(*Lease) error, opts ...Option) error {
		l, err := lock(ctx, opts...)
		if err != nil {
			return err
		}
		if err := use(l); err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
	nothing := func(*Lease) error { return nil }
	for name, call := range map[string]func(ctx context.Context, d string) error{
		"lock": func(ctx context.Context, d string) error { return holding(ctx, c.Mutex(d).Lock, nothing) },
		"lock with a wait": func(ctx context.Context, d string) error {
			return holding(ctx, c.Mutex(d).Lock, nothing, WithWait(time.Hour))
		},
		"limit": func(ctx context.Context, d string) error {
			return holding(ctx, c.Mutex(d).Lock, nothing, WithMaxHold(time.Hour, 0))
		},
		"work": func(ctx context.Context, d string) error {
			return c.Mutex(d).Do(ctx, func(context.Context, *Lease) error { return nil })
		},
		"lease": func(ctx context.Context, d string) error {
			return holding(ctx, c.Mutex(d).Lock, func(l *Lease) error {
				if err := l.Check(ctx); err != nil {
					return err
				}
				if _, err := l.Txn(ctx); err != nil {
					return err
				}
				return c.CheckSequencer(ctx, l.Sequencer())
			})
		},
		"nested": func(ctx context.Context, d string) error {
			m := c.RWMutex(d, WithReentrant())
			return holding(ctx, m.Lock, func(l *Lease) error {
				return holding(l.Context(), m.RLock, func(l *Lease) error {
					return holding(l.Context(), c.Mutex(d+"/a").Lock, nothing)
				})
			})
		},
		"changes of mode": func(ctx context.Context, d string) error {
			return holding(ctx, c.RWMutex(d, WithPolicy(PolicyFair)).RLock, func(l *Lease) error {
				if err := l.Upgrade(ctx); err != nil {
					return err
				}
				return l.Downgrade(ctx)
			})
		},
		"set": func(ctx context.Context, d string) error {
			return holding(ctx, func(ctx context.Context, o ...Option) (*Lease, error) {
				return c.All(ctx, c.Mutex(d+"/a").Request(), c.RWMutex(d+"/b").Request(fence.Shared))
			}, nothing)
		},
		"permits": func(ctx context.Context, d string) error { return holding(ctx, permitsAt(c, d), nothing) },
		"election": func(ctx context.Context, d string) error {
			el := c.Election(d)
			return holding(ctx, electionAt(c, d), func(l *Lease) error {
				if err := l.Publish(ctx, []byte("you")); err != nil {
					return err
				}
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				for range el.Observe(ctx) {
					cancel()
				}
				return errOf(el.Leader(l.Context()))
			})
		},
		"operator": func(ctx context.Context, d string) error {
			if _, err := c.Inspector().Inspect(ctx, d); err != nil {
				return err
			}
			return c.Inspector().Walk(ctx, d, -1, func(*recipe.Queue) error { return nil })
		},
	} {
		d, ctx := dir(t), testCtx(t)
		forgotten, done := make(chan struct{}), make(chan error)
		go func() {
			type key struct{}
			mark := new([64]byte)
			runtime.AddCleanup(mark, func(ch chan struct{}) { close(ch) }, forgotten)
			done <- call(context.WithValue(ctx, key{}, mark), d)
		}()
		must.OK(t, soon(t, name, done), "%s", name)
		eventually(t, name+" to be forgotten", func() bool {
			runtime.GC()
			return session.IsClosed(forgotten)
		})
	}
}
