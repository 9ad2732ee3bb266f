package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
)

// A session that was ended by force may have ended before Unlock was called: then there
// was another holder in between, and Unlock must not say that all is well.
func TestUnlockTellsOfASessionThatWasEndedByForce(t *testing.T) {
	addr(t)
	leakCheck(t)
	for _, simple := range []bool{true, false} {
		d := dir(t)
		c, p := proxied(t, WithSessionTimeout(30*time.Second))
		m := c.Mutex(d)
		if !simple {
			m = c.Mutex(d, WithLockDelay(time.Nanosecond))
		}
		l := lock(t, m.Lock)
		p.Refuse(true)
		p.Cut()
		expire(t, p)
		other := lock(t, dial(t).Mutex(d).Lock)
		if !l.Valid() {
			t.Fatal("the loss is known already")
		}
		res := make(chan error, 1)
		go func() { res <- l.Unlock(testCtx(t)) }()
		not(t, "Unlock knows the outcome", res, 10*time.Millisecond)
		p.Refuse(false)
		var lost *LostError
		if err := soon(t, "Unlock", res); !errors.As(err, &lost) || lost.Reason != Expired {
			t.Errorf("simple %v: Unlock said %v, while another held the lock", simple, err)
		}
		unlock(t, other)
	}
}

// The answer to a question may tell of the end of the session before the client was
// told: it is the loss of the lease all the same.
func TestEndOfTheSessionIsTheLossOfTheLease(t *testing.T) {
	c, d := dial(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	if err := l.checkErr(testCtx(t), ErrSessionExpired); !errors.Is(err, ErrLost) || l.Context().Err() == nil {
		t.Error(err)
	}

	el := c.Election(d + "/e")
	l = must[*Lease](t)(el.Campaign(testCtx(t), []byte("a")))
	if err := observer(t).Delete(l.Node(), -1); err != nil {
		t.Fatal(err)
	}
	if err := el.Proclaim(testCtx(t), l, []byte("b")); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
}

// The loss of a set names the lock that is to blame.
func TestLossOfASetNamesTheLock(t *testing.T) {
	c, d, o := dial(t), dir(t), observer(t)
	for _, opts := range [][]Option{nil, {WithoutRequeue()}} {
		for how, notice := range map[string]func(*Lease) error{
			"watch": func(l *Lease) error { soon(t, "the loss", l.Lost()); return l.Err() },
			"check": func(l *Lease) error { return l.Check(testCtx(t)) },
			"txn":   func(l *Lease) error { _, err := l.Txn(testCtx(t)); return err },
		} {
			set := must[*Lease](t)(c.AcquireAll(testCtx(t), c.Mutex(d+"/a").Request(opts...), c.RWMutex(d+"/b").Request(fence.Shared)))
			node := set.Nodes()[1]
			if err := o.Delete(node, -1); err != nil {
				t.Fatal(err)
			}
			var lost *LostError
			if err := notice(set); !errors.As(err, &lost) || lost.Path != d+"/b" || lost.Node != node || lost.Reason != Removed {
				t.Errorf("%s, %d options: %v", how, len(opts), err)
			}
			if err := set.Unlock(context.Background()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			queued(t, o, d+"/a", 0)
		}
	}
}

// A set that may not queue again says what became of the lock that it had.
func TestSetThatLosesALockOnTheWaySaysWhy(t *testing.T) {
	d, o, other := dir(t), observer(t), dial(t)
	for name, want := range map[string]error{"removed": ErrNodeRemoved, "held too long": ErrLost} {
		lost := make(chan LockEvent, 10)
		c := dial(t, WithHooks(Hooks{OnLost: func(e LockEvent) { lost <- e }}))
		b := lock(t, other.Mutex(d+"/b").Lock)
		opts := []Option{WithoutRequeue()}
		if name == "held too long" {
			opts = append(opts, WithLimit(Limit{Hold: ownWatch / 2, Grace: -1}))
		}
		set := start(testCtx(t), func(ctx context.Context, _ ...Option) (*Lease, error) {
			return c.AcquireAll(ctx, c.Mutex(d+"/a").Request(opts...), c.Mutex(d+"/b").Request())
		})
		queued(t, o, d+"/b", 2)
		if name == "removed" {
			if err := o.Delete(d+"/a/"+names(t, o, d+"/a")[0], -1); err != nil {
				t.Fatal(err)
			}
		}
		soon(t, "the loss", lost)
		unlock(t, b)
		if err := set.fails(t); !errors.Is(err, want) || errors.Is(err, ErrSessionExpired) {
			t.Errorf("%s: %v", name, err)
		}
		queued(t, o, d+"/a", 0)
		queued(t, o, d+"/b", 0)
	}
}

// Whatever a lease says of itself to others is true, and once for each lock.
func TestSequencersAreCurrent(t *testing.T) {
	c, d := dial(t), dir(t)
	policy := c.RWMutex(d+"/policy", WithPolicy(PolicyFair))
	for name, take := range map[string]take{
		"write": c.RWMutex(d + "/rw").Lock, "policy write": policy.Lock, "policy read": policy.RLock,
		"policy upgrade": changing(policy.RLock, (*Lease).Upgrade), "policy downgrade": changing(policy.Lock, (*Lease).Downgrade),
		"downgrade": changing(c.RWMutex(d+"/rw").Lock, (*Lease).Downgrade),
		"set": func(ctx context.Context, _ ...Option) (*Lease, error) {
			return c.AcquireAll(ctx, policy.Request(fence.Exclusive), c.Mutex(d+"/a").Request())
		},
	} {
		l := lock(t, take)
		paths := map[string]bool{}
		for _, s := range l.Sequencers() {
			if err := c.CheckSequencer(testCtx(t), s); err != nil || paths[s.Path] || s.Mode != l.Mode() {
				t.Errorf("%s: %+v: %v", name, s, err)
			}
			paths[s.Path] = true
		}
		unlock(t, l)
	}
}
