package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// LockOption sets something of a lock object.
type LockOption interface{ applyLock(*lockConfig) }

// AcquireOption sets something for one call. Every AcquireOption is a LockOption
// too and then holds for all calls.
type AcquireOption interface {
	LockOption
	acquire()
}

// lockOption is what every option is; its type as a result says where it may be given.
type lockOption func(*lockConfig)

func (f lockOption) applyLock(c *lockConfig) { f(c) }
func (lockOption) acquire()                  {}

// lockConfig is what the options of a lock and of a call say together.
type lockConfig struct {
	reason        string
	data          []byte // instead of an owner record, if not nil
	acl           []zk.ACL
	layout        Layout
	policy        Policy
	policySet     bool
	maxWriterWait time.Duration
	lockDelay     time.Duration
	maxHold       time.Duration
	maxHoldGrace  time.Duration
	breakable     bool
	reentrant     bool
	noLocalQueue  bool
	heldSince     bool
	revocable     bool
	revokeGrace   time.Duration
	strict        bool
	noRequeue     bool
	freshTry      bool
	latch         bool
	atomicSet     bool
	earlyUnlock   bool
	wait          time.Duration
	linger        bool
	hooks         Hooks
}

func newLockConfig(opts []LockOption) *lockConfig {
	c := &lockConfig{acl: zk.WorldACL(zk.PermAll), maxWriterWait: recipe.DefaultMaxWriterWait, maxHoldGrace: recipe.DefaultGrace}
	for _, o := range opts {
		o.applyLock(c)
	}
	return c
}

// with returns a copy changed by the options of one call.
func (c *lockConfig) with(opts []AcquireOption) *lockConfig {
	if len(opts) == 0 {
		return c
	}
	d := *c
	for _, o := range opts {
		o.applyLock(&d)
	}
	return &d
}

// WithReason tells others what the lock is held for.
func WithReason(text string) AcquireOption {
	return lockOption(func(c *lockConfig) { c.reason = text })
}

// WithData replaces the owner record in the lock's node by these bytes, for
// programs that expect their own there.
func WithData(b []byte) AcquireOption {
	return lockOption(func(c *lockConfig) { c.data = append([]byte{}, b...) })
}

// WithACL sets the access control list of the nodes the lock makes.
func WithACL(acl ...zk.ACL) LockOption {
	return lockOption(func(c *lockConfig) { c.acl = slices.Clone(acl) })
}

// WithLayout says how nodes are named; see [Layout].
func WithLayout(l Layout) LockOption {
	return lockOption(func(c *lockConfig) { c.layout = l })
}

// WithPolicy makes a read-write lock follow a policy, which also allows
// [Lease.Upgrade]. Everyone who uses its path must use this package and name the
// same policy.
func WithPolicy(p Policy) LockOption {
	return lockOption(func(c *lockConfig) { c.policy, c.policySet, c.layout = p, true, LayoutPolicy })
}

// WithMaxWriterWait bounds how long readers may overtake a writer under
// [PolicyReader]; 10 s by default.
func WithMaxWriterWait(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.maxWriterWait = d })
}

// WithLockDelay makes the next holder wait d if the one before went away without
// unlocking, for resources that cannot check tokens. Everyone who uses the path
// must set it. It costs one more write for each grant.
func WithLockDelay(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.lockDelay = d })
}

// WithWait limits the wait for the lock: after d the call ends with an error that is
// ErrNotAcquired and context.DeadlineExceeded. Unlike a context with a timeout given
// to Do, it leaves the work alone.
func WithWait(d time.Duration) AcquireOption {
	return lockOption(func(c *lockConfig) { c.wait = d })
}

// WithMaxHold ends a lease that was held for d. Its node is removed a grace later:
// a second, or what [WithGrace] says. A lock of a set is held from its own grant on,
// while others of the set are still waited for.
func WithMaxHold(d time.Duration) AcquireOption {
	return lockOption(func(c *lockConfig) { c.maxHold = d })
}

// WithGrace sets how long the node of a lease that was held too long stays.
func WithGrace(d time.Duration) AcquireOption {
	return lockOption(func(c *lockConfig) { c.maxHoldGrace = d })
}

// WithLinger keeps the nodes of a lost lease until it is unlocked, as far as that
// is in the client's hands: after the reasons Deadline, Disconnected, MaxHold and
// Revoked. It is for those who need time to stop what they do, and must be
// followed by Unlock in any case. Without it the lock is free for others as soon
// as the lease is lost here (after the grace, if it was held too long).
func WithLinger() AcquireOption { return lockOption(func(c *lockConfig) { c.linger = true }) }

// WithBreakable writes the time limit of WithMaxHold into the node, so that a
// waiter that is breakable too, or [Client.BreakExpired], removes the node once
// the limit and the grace are over by the server's clock.
func WithBreakable() AcquireOption {
	return lockOption(func(c *lockConfig) { c.breakable = true })
}

// WithReentrant lets a context that holds the lock take it again: without any
// traffic, for a lease that shares node and token.
func WithReentrant() LockOption { return lockOption(func(c *lockConfig) { c.reentrant = true }) }

// WithoutLocalQueue gives each contender of this process its own node, instead of
// letting them queue in the process first.
func WithoutLocalQueue() LockOption { return lockOption(func(c *lockConfig) { c.noLocalQueue = true }) }

// WithHeldSince records the time of a grant that had to wait, for [Client.Inspect].
// It costs a write and wakes the next in line once.
func WithHeldSince() LockOption { return lockOption(func(c *lockConfig) { c.heldSince = true }) }

// WithRevocable makes a lease end a grace after somebody asked for it. Without it
// a holder only hears of the wish, by [Lease.Revoked].
func WithRevocable(grace time.Duration) AcquireOption {
	return lockOption(func(c *lockConfig) { c.revocable, c.revokeGrace = true, grace })
}

// WithEarlyUnlock has Unlock return as soon as the release is on its way, so that
// what the program does next overlaps with it: taking locks in quick succession is
// faster by a round trip and a write of the server's. The release is as certain as
// ever while the session lives, but who asks at once may still find the lock held,
// and Unlock does not tell if somebody had removed the node a moment before. Close
// the client before the program exits.
func WithEarlyUnlock() AcquireOption {
	return lockOption(func(c *lockConfig) { c.earlyUnlock = true })
}

// WithStrict ends a lease as soon as the connection is lost, instead of at the deadline.
func WithStrict() AcquireOption { return lockOption(func(c *lockConfig) { c.strict = true }) }

// WithoutRequeue makes a waiter that lost its place fail instead of queueing again.
func WithoutRequeue() AcquireOption {
	return lockOption(func(c *lockConfig) { c.noRequeue = true })
}

// WithFreshTry makes a try ask for the newest state first. Without it, a try may
// be refused for a lock released a moment ago.
func WithFreshTry() AcquireOption { return lockOption(func(c *lockConfig) { c.freshTry = true }) }

// WithAtomicSet, given to one lock of a set, makes [Client.AcquireAll] queue for
// all its locks in one transaction. That is faster where sets contend, and
// all locks have one token. But the set then has a place in every queue while it
// waits in another: with those who take single locks one after another, even in
// the order of the paths, it can deadlock. It does nothing for sets with semaphores,
// policies or lock delays.
func WithAtomicSet() AcquireOption { return lockOption(func(c *lockConfig) { c.atomicSet = true }) }

// WithLatch names an election's candidates as Curator's LeaderLatch does.
func WithLatch() LockOption { return lockOption(func(c *lockConfig) { c.latch = true }) }

// WithHooks sets functions that are told of the events of one lock.
func WithHooks(h Hooks) LockOption { return lockOption(func(c *lockConfig) { c.hooks = h }) }

// breakLimit returns how long after its grant others may break the lock.
func (c *lockConfig) breakLimit() (time.Duration, bool) {
	return c.maxHold + c.maxHoldGrace, c.breakable && c.maxHold > 0
}

// check refuses combinations that cannot work.
func (c *lockConfig) check(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	switch {
	case int(c.layout) >= len(recipe.LayoutNames):
		return fmt.Errorf("%w: %v", ErrInvalid, c.layout)
	case c.layout == LayoutPolicy && !c.policySet:
		return fmt.Errorf("%w: LayoutPolicy is chosen by WithPolicy", ErrInvalid)
	case c.wait < 0 || c.maxHold < 0 || c.maxHoldGrace < 0 || c.lockDelay < 0 || c.revokeGrace < 0 || c.maxWriterWait < 0:
		return fmt.Errorf("%w: a duration or number is negative", ErrInvalid)
	case c.breakable && c.maxHold > 0 && c.data != nil:
		return fmt.Errorf("%w: WithBreakable needs the owner record that WithData replaces", ErrInvalid)
	}
	return nil
}

// Task names the work a context belongs to, so that [Client.WaitGraph] can tell
// which locks are waited for and held on behalf of the same work. A context from
// a lease has the task of that lease; one without a task gets a random one with
// its first lock.
//
// A task is one line of work, which does not wait for itself: a client refuses a
// lock that the same task holds with ErrSelfDeadlock, also where the lease's context
// is not passed on. Without a name such a wait is not noticed, and never ends.
func Task(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, taskKey{}, name)
}

type taskKey struct{}
