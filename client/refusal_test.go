package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// refusable is a call of the package, and what must exist before the call. The server does not refuse the
// calls that prepare() makes.
type refusable struct {
	prepare func(t *testing.T, c, rival *Client, d string) func(ctx context.Context) error
	leased  bool  // the call is about a lease, which may be lost during the call
	again   []int // numbers of answers that the client does not need; if they are refused, it asks again
}

// taking() returns a call that takes a lock.
func taking(lock func(c *Client, d string) taker, opts ...Option) refusable {
	return refusable{prepare: func(_ *testing.T, c, _ *Client, d string) func(context.Context) error {
		return func(ctx context.Context) error { return errOf(lock(c, d)(ctx, opts...)) }
	}}
}

// waiting() returns a call that waits for a lock, which another client holds for a while.
func waiting(lock func(c *Client, d string) taker, again []int, opts ...Option) refusable {
	return refusable{prepare: func(t *testing.T, c, rival *Client, d string) func(context.Context) error {
		l := must.Get(lock(rival, d)(testCtx(t)))(t)
		// Wait until the client has removed its node at the head of a semaphore's queue.
		must.OK(t, rival.keeper.Conn().Sync(testCtx(t), d))
		return func(ctx context.Context) error {
			given := make(chan error, 1)
			time.AfterFunc(2*ownWatch, func() { given <- l.Unlock(ctx) })
			_, err := lock(c, d)(ctx, opts...)
			must.OK(t, <-given)
			return err
		}
	}, again: again}
}

// afterADeath returns a call that takes a lock whose last holder did not unlock.
func afterADeath(lock func(c *Client, d string) taker, again ...int) refusable {
	delay := WithLockDelay(10 * time.Millisecond)
	return refusable{prepare: func(t *testing.T, c, _ *Client, d string) func(context.Context) error {
		dead, p := proxied(t)
		l := must.Get(lock(dead, d)(testCtx(t), delay))(t)
		expire(t, p)
		soon(t, "the loss", l.Lost())
		must.OK(t, dead.Close(testCtx(t)))
		return func(ctx context.Context) error { return errOf(lock(c, d)(ctx, delay)) }
	}, again: again}
}

// asks() sets which answers the client does not need, by number: if they are refused, the client asks again.
func (r refusable) asks(again ...int) refusable {
	r.again = again
	return r
}

// quietly() takes a lock whose nodes the client does not look at later.
func quietly(t *testing.T, lock taker, opts ...Option) *Lease {
	t.Helper()
	for {
		l := must.Get(lock(testCtx(t), opts...))(t)
		if l.hold().Hang() {
			return l
		}
		unlock(t, l)
	}
}

// having() returns a call that uses a lease.
func having(
	lock func(c *Client, d string) taker, call func(ctx context.Context, c *Client, l *Lease) error,
) refusable {
	return refusable{leased: true, prepare: func(t *testing.T, c, _ *Client,
		d string) func(context.Context) error {
		l := quietly(t, lock(c, d))
		must.OK(t, c.keeper.Conn().Sync(testCtx(t), d)) // until the client's node at the head of a queue is gone
		return func(ctx context.Context) error { return call(ctx, c, l) }
	}}
}

// of() turns a call that needs only the lease into a call for having().
func of(call func(*Lease, context.Context) error) func(context.Context, *Client, *Lease) error {
	return func(ctx context.Context, _ *Client, l *Lease) error { return call(l, ctx) }
}

func transacts(l *Lease, ctx context.Context) error { return errOf(l.Txn(ctx)) }

// seeing() returns a call of an operator about a lock of another client.
func seeing(
	lock func(c *Client, d string) taker,
	call func(ctx context.Context, i *Inspector, d string, l *Lease) error,
	opts ...Option,
) refusable {
	return refusable{prepare: func(t *testing.T, c, rival *Client, d string) func(context.Context) error {
		l := must.Get(lock(rival, d)(testCtx(t), opts...))(t)
		if len(opts) > 0 { // opts has a limit of a millisecond
			eventually(t, "the holder's note that its limit is over", func() bool {
				conn := must.Get(rival.Conn(testCtx(t)))(t)
				n := must.Get(conn.Get(testCtx(t), l.Node()))(t)
				o, _ := recipe.ParseOwner(n.Data)
				return o.Over
			})
		}
		return func(ctx context.Context) error { return call(ctx, c.Inspector(), d, l) }
	}}
}

func mutexAt(c *Client, d string) taker { return c.Mutex(d).Lock }
func writeAt(c *Client, d string) taker { return c.RWMutex(d).Lock }
func policyReadAt(c *Client, d string) taker {
	return c.RWMutex(d, WithPolicy(PolicyFair)).RLock
}
func policyWriteAt(c *Client, d string) taker {
	return c.RWMutex(d, WithPolicy(PolicyFair)).Lock
}
func permitsAt(c *Client, d string) taker {
	return func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Semaphore(d, 3).Acquire(ctx, 2, o...)
	}
}
func kazooPermitsAt(c *Client, d string) taker {
	return func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Semaphore(d, 3, WithLayout(LayoutKazoo)).Acquire(ctx, 2, o...)
	}
}
func electionAt(c *Client, d string) taker {
	return func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Election(d).Campaign(ctx, []byte("me"), o...)
	}
}
func inspectAt(ctx context.Context, i *Inspector, d string, _ *Lease) error {
	return errOf(i.Inspect(ctx, d))
}
func walkAt(ctx context.Context, i *Inspector, d string, _ *Lease) error {
	return i.Walk(ctx, d, -1, func(*recipe.Queue) error { return nil })
}
func breakAt(ctx context.Context, i *Inspector, d string, l *Lease) error {
	return i.Break(ctx, d, recipe.Base(l.Node()), l.Token())
}

var refusables = map[string]refusable{
	"mutex":        taking(mutexAt).asks(2, 5),
	"mutex, try":   taking(func(c *Client, d string) taker { return c.Mutex(d).TryLock }).asks(3, 6),
	"mutex, delay": taking(mutexAt, WithLockDelay(time.Hour)).asks(2, 5),
	"write":        taking(writeAt).asks(2, 5),
	"policy read":  taking(policyReadAt).asks(6),
	"policy write": taking(policyWriteAt),
	"policy try": taking(func(c *Client, d string) taker {
		return c.RWMutex(d, WithPolicy(PolicyFair)).TryLock
	}),
	"policy delay":                 taking(policyWriteAt, WithLockDelay(time.Hour)),
	"permits":                      taking(permitsAt).asks(4, 9),
	"permits of kazoo":             taking(kazooPermitsAt),
	"election":                     taking(electionAt).asks(2, 5),
	"waiting for a mutex":          waiting(mutexAt, []int{2, 3}),
	"waiting for permits":          waiting(permitsAt, []int{4}),
	"waiting by policy":            waiting(policyWriteAt, nil),
	"mutex of a dead holder":       afterADeath(mutexAt, 2),
	"policy lock of a dead holder": afterADeath(policyWriteAt),
	"read by policy of a dead holder": {prepare: func(t *testing.T, c, rival *Client,
		d string) func(context.Context) error {
		afterADeath(policyWriteAt).prepare(t, c, rival, d)
		return func(ctx context.Context) error {
			return errOf(policyReadAt(c, d)(ctx, WithLockDelay(10*time.Millisecond)))
		}
	}, again: []int{9}},
	"set": taking(func(c *Client, d string) taker {
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.All(ctx, c.Mutex(d+"/a").Request(o...), c.RWMutex(d+"/b").Request(fence.Shared, o...))
		}
	}).asks(2, 7, 9, 12),
	"check":            having(mutexAt, of((*Lease).Check)),
	"check of permits": having(permitsAt, of((*Lease).Check)),
	"transaction":      having(mutexAt, of(transacts)),
	"sequencer": having(mutexAt, func(ctx context.Context, c *Client, l *Lease) error {
		return c.CheckSequencer(ctx, l.Sequencer())
	}),
	"unlock":              having(mutexAt, of((*Lease).Unlock)),
	"downgrade":           having(writeAt, of((*Lease).Downgrade)),
	"downgrade by policy": having(policyWriteAt, of((*Lease).Downgrade)),
	"upgrade":             having(policyReadAt, of((*Lease).Upgrade)),
	"try upgrade":         having(policyReadAt, of((*Lease).TryUpgrade)),
	"proclaim": having(electionAt, func(ctx context.Context, c *Client, l *Lease) error {
		return l.Publish(ctx, []byte("you"))
	}),
	"leader": seeing(electionAt, func(ctx context.Context, i *Inspector, d string, _ *Lease) error {
		return errOf(i.c.Election(d).Leader(ctx))
	}),
	"limit": seeing(permitsAt, func(ctx context.Context, i *Inspector, d string, _ *Lease) error {
		return i.c.Semaphore(d, 3).SetPermits(ctx, 4)
	}),
	"first limit": {prepare: func(_ *testing.T, c, _ *Client, d string) func(context.Context) error {
		return func(ctx context.Context) error { return c.Semaphore(d, 3).SetPermits(ctx, 4) }
	}},
	"inspect":                  seeing(mutexAt, inspectAt),
	"inspect permits":          seeing(permitsAt, inspectAt),
	"inspect permits of kazoo": seeing(kazooPermitsAt, inspectAt),
	"walk":                     seeing(mutexAt, walkAt),
	"walk permits":             seeing(permitsAt, walkAt),
	"walk by policy":           seeing(policyWriteAt, walkAt),
	"graph": seeing(mutexAt, func(ctx context.Context, i *Inspector, d string, _ *Lease) error {
		return errOf(i.WaitGraph(ctx, d))
	}),
	"break":           seeing(mutexAt, breakAt),
	"break by policy": seeing(policyWriteAt, breakAt),
	"break expired": seeing(policyWriteAt, func(ctx context.Context, i *Inspector, d string, l *Lease) error {
		return i.BreakExpired(ctx, d, recipe.Base(l.Node()), l.Token())
	}, join(WithMaxHold(time.Millisecond, 0), WithLinger())),
	"revoke": seeing(mutexAt, func(ctx context.Context, i *Inspector, d string, l *Lease) error {
		return i.Revoke(ctx, d, recipe.Base(l.Node()), recipe.Revocation{By: "me"})
	}),
}

// A call fails if the server refuses any of its requests, and its error says why.
func TestEveryRefusalIsTold(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, x := range refusables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := proxied(t)
			rival := dial(t)
			for k := 1; !t.Failed(); k++ {
				d := dir(t)
				call := x.prepare(t, c, rival, d)
				var made []string // the beginnings of the names of the call's own nodes
				rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Under: d, Nth: k, Do: faultproxy.Fail, Code: -114,
					Match: func(f faultproxy.Frame) bool {
						switch f.Op {
						case faultproxy.OpCreate, faultproxy.OpCreate2, faultproxy.OpMulti:
							made = append(made, f.Path)
						case faultproxy.OpGetData, faultproxy.OpDelete:
							// The client reads and removes its own nodes in the background.
							return !slices.ContainsFunc(made, func(m string) bool {
								return m != d && strings.HasPrefix(f.Path, m)
							})
						}
						return true
					}})
				err := call(testCtx(t))
				rule.Remove()
				switch {
				case !session.IsClosed(rule.Acted()):
					must.OK(t, err)
					must.That(t, k > 1, "it asks nothing")
					return
				case x.leased && errors.Is(err, ErrLost): // the server carried out the request whose answer was replaced
				case err != nil || !slices.Contains(x.again, k):
					must.Is(t, err, zk.ErrInvalidACL, "answer %d", k)
				}
			}
		})
	}
}
