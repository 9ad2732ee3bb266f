package client_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
)

// programOps are the calls that random programs make. Every call of the package is in programOps or in
// otherCalls.
var programOps map[string]func(w *worker)

// otherCalls are the calls that random programs need not make, each with the reason.
var otherCalls = map[string]string{
	"Mutex.Path": "constant", "RWMutex.Path": "constant", "Semaphore.Path": "constant", "Lease.Path": "constant",
	"Mutex.Request": "see Client.All", "RWMutex.Request": "see Client.All",
	"Semaphore.Request": "see Client.All",
	"Client.Mutex":      "makes an object", "Client.RWMutex": "makes an object",
	"Client.Semaphore": "makes an object",
	"Client.Election":  "makes an object",
	"Client.Session":   "used by the test", "Client.Close": "used by the test", "Client.Servers": "constant",
	"Client.Conn": "TestConn", "Client.State": "used by the loop", "Lease.Release": "see Lease.Unlock",
	"Client.DoAll":     "see Client.All",
	"Client.Inspector": "makes an object",
	"Election.Observe": "reads; TestE62AnObserverOverManyLeaders",
}

func lockOf(w *worker, m interface {
	Lock(context.Context, ...client.Option) (*client.Lease, error)
}, path string, call []client.Option) {
	w.take(path, fence.Exclusive, 0, func(ctx context.Context) (*client.Lease, error) {
		return m.Lock(ctx, call...)
	})
}

func init() {
	programOps = map[string]func(w *worker){
		"Mutex.Lock": func(w *worker) {
			p := w.path("mutex")
			if w.r.IntN(8) == 0 {
				p = w.path("sem") // a path of another kind of lock
			}
			lock, call := w.split(p)
			lockOf(w, w.c.Mutex(p.path, lock...), p.path, call)
		},
		"Mutex.TryLock": func(w *worker) {
			p := w.path("mutex")
			lock, call := w.split(p)
			w.take(p.path, fence.Exclusive, 0, func(ctx context.Context) (*client.Lease, error) {
				return w.c.Mutex(p.path, lock...).TryLock(ctx, call...)
			})
		},
		"Mutex.Do": func(w *worker) {
			p := w.path("mutex")
			lock, call := w.split(p)
			w.do(p.path, fence.Exclusive, 0, func(ctx context.Context, f work) error {
				return w.c.Mutex(p.path, lock...).Do(ctx, f, call...)
			})
		},
		"RWMutex.Lock": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			lockOf(w, w.c.RWMutex(p.path, lock...), p.path, call)
		},
		"RWMutex.TryLock": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			w.take(p.path, fence.Exclusive, 0, func(ctx context.Context) (*client.Lease, error) {
				return w.c.RWMutex(p.path, lock...).TryLock(ctx, call...)
			})
		},
		"RWMutex.RLock": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			w.take(p.path, fence.Shared, 0, func(ctx context.Context) (*client.Lease, error) {
				return w.c.RWMutex(p.path, lock...).RLock(ctx, call...)
			})
		},
		"RWMutex.TryRLock": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			w.take(p.path, fence.Shared, 0, func(ctx context.Context) (*client.Lease, error) {
				return w.c.RWMutex(p.path, lock...).TryRLock(ctx, call...)
			})
		},
		"RWMutex.Do": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			w.do(p.path, fence.Exclusive, 0, func(ctx context.Context, f work) error {
				return w.c.RWMutex(p.path, lock...).Do(ctx, f, call...)
			})
		},
		"RWMutex.RDo": func(w *worker) {
			p := w.path("rw")
			lock, call := w.split(p)
			w.do(p.path, fence.Shared, 0, func(ctx context.Context, f work) error {
				return w.c.RWMutex(p.path, lock...).RDo(ctx, f, call...)
			})
		},
		"Semaphore.Acquire": func(w *worker) {
			p, n := w.path("sem"), 1+w.r.IntN(programPermits)
			lock, call := w.split(p)
			w.take(p.path, fence.Permit, n, func(ctx context.Context) (*client.Lease, error) {
				return w.c.Semaphore(p.path, programPermits, lock...).Acquire(ctx, n, call...)
			})
		},
		"Semaphore.TryAcquire": func(w *worker) {
			p, n := w.path("sem"), 1+w.r.IntN(programPermits)
			lock, call := w.split(p)
			w.take(p.path, fence.Permit, n, func(ctx context.Context) (*client.Lease, error) {
				return w.c.Semaphore(p.path, programPermits, lock...).TryAcquire(ctx, n, call...)
			})
		},
		"Semaphore.Do": func(w *worker) {
			p, n := w.path("sem"), 1+w.r.IntN(programPermits)
			lock, call := w.split(p)
			w.do(p.path, fence.Permit, n, func(ctx context.Context, f work) error {
				return w.c.Semaphore(p.path, programPermits, lock...).Do(ctx, n, f, call...)
			})
		},
		"Semaphore.SetPermits": func(w *worker) {
			ctx, cancel := w.moment()
			defer cancel()
			_ = w.c.Semaphore(w.path("sem").path, programPermits).SetPermits(ctx, programPermits)
		},
		"Election.Campaign": func(w *worker) {
			p := w.path("elect")
			lock, call := w.split(p)
			w.take(p.path, fence.Exclusive, 0, func(ctx context.Context) (*client.Lease, error) {
				return w.c.Election(p.path, lock...).Campaign(ctx, []byte(fmt.Sprint("value-", w.id)), call...)
			})
		},
		"Election.Do": func(w *worker) {
			p := w.path("elect")
			lock, call := w.split(p)
			w.do(p.path, fence.Exclusive, 0, func(ctx context.Context, f work) error {
				return w.c.Election(p.path, lock...).Do(ctx, []byte(fmt.Sprint("value-", w.id)), f, call...)
			})
		},
		"Lease.Publish": func(w *worker) {
			w.someClaim(func(ctx context.Context, c *claim) { _ = c.lease.Publish(ctx, []byte("value-new")) })
		},
		"Election.Leader": func(w *worker) {
			p := w.path("elect")
			ctx, cancel := w.moment()
			defer cancel()
			l, err := w.c.Election(p.path, p.opts...).Leader(ctx)
			if err == nil && !l.None() && !strings.HasPrefix(string(l.Value), "value-") {
				w.ref.t.Errorf("%s: the leader's value is %q", p.path, l.Value)
			}
		},
		"Lease.Unlock": func(w *worker) {
			if len(w.claims) > 0 {
				w.give(w.r.IntN(len(w.claims)))
			}
		},
		"Lease.Downgrade": func(w *worker) {
			w.someClaim(func(ctx context.Context, c *claim) {
				if c.mode == fence.Exclusive && c.outer == nil {
					w.ref.becomes(c, fence.Shared)
					_ = c.lease.Downgrade(ctx)
				}
			})
		},
		"Lease.Upgrade":    func(w *worker) { w.someClaim(w.upgrade((*client.Lease).Upgrade)) },
		"Lease.TryUpgrade": func(w *worker) { w.someClaim(w.upgrade((*client.Lease).TryUpgrade)) },
		"Lease.Check": func(w *worker) {
			w.someClaim(func(ctx context.Context, c *claim) { _ = c.lease.Check(ctx) })
		},
		"Lease.Txn": func(w *worker) {
			w.someClaim(func(ctx context.Context, c *claim) {
				_, _ = c.lease.Txn(ctx, zk.Check{Path: "/foreign", Version: -1})
			})
		},
		"Lease.Valid": func(w *worker) { w.someClaim(w.saysWhy) },
		"Client.All": func(w *worker) {
			w.takeAll(func(ctx context.Context, reqs ...client.Request) (*client.Lease, error) {
				return w.c.All(ctx, reqs...)
			})
		},
		"Client.TryAll": func(w *worker) {
			w.takeAll(func(ctx context.Context, reqs ...client.Request) (*client.Lease, error) {
				return w.c.TryAll(ctx, reqs...)
			})
		},
		"Client.CheckSequencer": func(w *worker) {
			w.someClaim(func(ctx context.Context, c *claim) { _ = w.c.CheckSequencer(ctx, c.lease.Sequencers()[0]) })
		},
	}
	addOperatorCalls()
	for _, name := range []string{"Until", "Err", "Context", "Lost", "Mode", "Token", "Sequencer",
		"Sequencers", "Node", "Nodes", "Asked", "Slots"} {
		otherCalls["Lease."+name] = "see Lease.Valid"
	}
}

type work = func(context.Context, *client.Lease) error

// do() runs a call that itself runs a function under a lease, such as Mutex.Do.
func (w *worker) do(path string, mode fence.Mode, n int, call func(context.Context, work) error) {
	ctx, cancel := w.moment()
	defer cancel()
	before := w.ref.start(w.id)
	_ = call(ctx, func(_ context.Context, l *client.Lease) error {
		c := &claim{client: w.id, path: path, lease: l, mode: mode, n: n}
		if mode == fence.Permit {
			c.of = programPermits
		}
		w.ref.granted(c, before)
		w.ref.released(c)
		return nil
	})
}

// takeAll takes a set. Each lock of the set is a separate claim.
func (w *worker) takeAll(call func(context.Context, ...client.Request) (*client.Lease, error)) {
	a, b, mode := w.path("mutex"), w.path("rw"), fence.Exclusive
	if w.r.IntN(2) == 0 {
		mode = fence.Shared
	}
	lockA, callA := w.split(a)
	lockB, callB := w.split(b)
	w.take("set", fence.Permit, 0, func(ctx context.Context) (*client.Lease, error) {
		return call(ctx, w.c.Mutex(a.path, lockA...).Request(callA...), w.c.RWMutex(b.path, lockB...).Request(
			mode, callB...))
	})
}

func (w *worker) moment() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), ms(w.r, 200))
}

// upgrade() returns a call that upgrades a read lock and records that its lease now excludes others.
func (w *worker) upgrade(call func(*client.Lease, context.Context) error) func(context.Context, *claim) {
	return func(ctx context.Context, c *claim) {
		if c.mode == fence.Shared && c.outer == nil && call(c.lease, ctx) == nil {
			w.ref.becomes(c, fence.Exclusive)
		}
	}
}

// saysWhy reads everything that a lease says of itself.
func (w *worker) saysWhy(_ context.Context, c *claim) {
	l := c.lease
	expect.That(w.ref.t, l.Valid() || l.Err() != nil,
		"%s: a lease that is not valid has no error", c.path)
	_, _, _, _ = l.Until(), l.Context(), l.Mode(), l.Token()
	_, _, _ = l.Sequencer(), l.Node(), l.Nodes()
	select {
	case <-l.Lost():
	case <-l.Asked():
	default:
	}
}
