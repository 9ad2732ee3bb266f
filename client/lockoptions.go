package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// lockConfig combines the options of a lock and of a call.
type lockConfig struct {
	reason        string
	acl           []zk.ACL
	layout        Layout
	policy        recipe.Policy
	policySet     bool
	maxWriterWait time.Duration
	lockDelay     time.Duration
	limit         Limit
	reentrant     bool
	noLocalQueue  bool
	revocable     bool
	revokeGrace   time.Duration
	noRequeue     bool
	earlyUnlock   bool
	waitSet       bool
	wait          time.Duration
	hooks         Hooks
	misplaced     bool // an option of the session was given
}

func newLockConfig() lockConfig {
	return lockConfig{acl: zk.WorldACL(zk.PermAll), maxWriterWait: recipe.DefaultMaxWriterWait}
}

// lockConfig returns the configuration of a lock of the client.
func (c *Client) lockConfig(opts []Option) *lockConfig { return c.opt.lock.with(opts) }

// with returns the configuration changed by more options.
func (c *lockConfig) with(opts []Option) *lockConfig {
	if len(opts) == 0 {
		return c
	}
	all := config{lock: *c}
	for _, o := range opts {
		o(&all)
	}
	all.lock.misplaced = all.lock.misplaced || all.ofDial
	return &all.lock
}

// lasting reports whether the lock's directory must stay when it is empty. A lock delay keeps its
// mark in the directory's data, and kazoo makes a directory once and not again.
func (c *lockConfig) lasting() bool { return c.lockDelay > 0 || c.layout == LayoutKazoo }

// Limit ends a hold that lasts too long.
type Limit struct {
	// Hold is how long a lease lasts at most, from its grant on; 0 for no limit. A lock of a set
	// counts from its own grant, also while the set waits for other locks.
	Hold time.Duration
	// Grace is how long the node stays after Hold, so that the holder can wind down: 0 for a second,
	// negative for no time.
	Grace time.Duration
	// Break writes the limit into the node. Once Hold and Grace are over by the server's clock, a
	// waiter with Break, or an operator, removes the node.
	Break bool
	// Linger keeps the nodes of a lost lease until Unlock, as far as the client can: after the reasons
	// Deadline, MaxHold and Revoked. It is for programs that need time to stop; they must call Unlock
	// in any case. Without Linger the lock is free for others as soon as the lease is lost, or after
	// Grace.
	Linger bool
}

// grace is how long the nodes stay after a hold that lasted too long.
func (l Limit) grace() time.Duration {
	if l.Grace == 0 {
		return recipe.DefaultGrace
	}
	return max(l.Grace, 0)
}

// WithLimit ends holds that last too long; see [Limit].
func WithLimit(l Limit) Option { return ofLock(func(c *lockConfig) { c.limit = l }) }

// WithReason tells other clients what the lock is held for.
func WithReason(text string) Option {
	return ofLock(func(c *lockConfig) { c.reason = text })
}

// WithACL sets the access control list of the nodes that the lock makes.
func WithACL(acl ...zk.ACL) Option {
	return ofLock(func(c *lockConfig) { c.acl = slices.Clone(acl) })
}

// WithLayout says how nodes are named; see [Layout].
func WithLayout(l Layout) Option {
	return ofLock(func(c *lockConfig) { c.layout = l })
}

// WithPolicy makes a read-write lock follow a policy, and allows [Lease.Upgrade]. Every program
// that uses the path must use this package and name the same policy.
func WithPolicy(p recipe.Policy) Option {
	return ofLock(func(c *lockConfig) { c.policy, c.policySet, c.layout = p, true, recipe.LayoutPolicy })
}

// WithMaxWriterWait bounds how long readers may overtake a writer under
// [PolicyReader]; 10 s by default.
func WithMaxWriterWait(d time.Duration) Option {
	return ofLock(func(c *lockConfig) { c.maxWriterWait = d })
}

// WithLockDelay makes the next holder wait d if the last holder went away without unlocking, for
// resources that cannot check tokens. Every program that uses the path must set it. It costs one
// more write for each grant.
func WithLockDelay(d time.Duration) Option {
	return ofLock(func(c *lockConfig) { c.lockDelay = d })
}

// WithWait limits the wait for the lock. After d the call ends with an error that is both
// ErrNotAcquired and context.DeadlineExceeded. With 0 it does not wait for other holders at all,
// like the Try calls. Unlike a timeout of the context given to Do, WithWait does not limit the
// work.
func WithWait(d time.Duration) Option {
	return ofLock(func(c *lockConfig) { c.wait, c.waitSet = d, true })
}

// WithReentrant lets a context that holds the lock take it again. The new lease shares node and
// token with the first and causes no traffic.
func WithReentrant() Option { return ofLock(func(c *lockConfig) { c.reentrant = true }) }

// WithoutLocalQueue gives each contender of this process its own node. Without it they queue in the
// process first.
func WithoutLocalQueue() Option { return ofLock(func(c *lockConfig) { c.noLocalQueue = true }) }

// WithRevocable ends a lease when another client asked for the lock and grace is over. Without it
// the holder only gets the request, by [Lease.Revoked].
func WithRevocable(grace time.Duration) Option {
	return ofLock(func(c *lockConfig) { c.revocable, c.revokeGrace = true, grace })
}

// WithEarlyUnlock makes Unlock return as soon as the release is on its way, so that the program
// goes on at the same time. Taking locks in quick succession is faster by a round trip and a write
// of the server. While the session lives, the release is as certain as without it. But a client
// that asks at once may still find the lock held, and Unlock does not tell if another client
// removed the node a moment before. Close the client before the program exits.
func WithEarlyUnlock() Option {
	return ofLock(func(c *lockConfig) { c.earlyUnlock = true })
}

// WithoutRequeue makes a waiter that lost its place fail instead of queueing again.
func WithoutRequeue() Option {
	return ofLock(func(c *lockConfig) { c.noRequeue = true })
}

// WithHooks sets functions that the client calls on the events of one lock.
func WithHooks(h Hooks) Option { return ofLock(func(c *lockConfig) { c.hooks = h }) }

// breakLimit returns how long after its grant others may break the lock.
func (c *lockConfig) breakLimit() (time.Duration, bool) {
	return c.limit.Hold + c.limit.grace(), c.limit.Break && c.limit.Hold > 0
}

// check refuses combinations that cannot work.
func (c *lockConfig) check(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	switch {
	case c.layout >= recipe.LayoutZooKeeper:
		return fmt.Errorf("%w: %v", ErrInvalid, c.layout)
	case c.layout == recipe.LayoutPolicy && !c.policySet:
		return fmt.Errorf("%w: this layout is chosen by WithPolicy", ErrInvalid)
	case c.wait < 0 || c.limit.Hold < 0 || c.lockDelay < 0 || c.revokeGrace < 0 || c.maxWriterWait < 0:
		return fmt.Errorf("%w: a duration or number is negative", ErrInvalid)
	case c.misplaced:
		return fmt.Errorf("%w: an option of the session is given to Dial, not to a lock", ErrInvalid)
	}
	return nil
}

// Task names the work that a context belongs to, so that [Inspector.WaitGraph] can tell which locks
// the same work holds and waits for. The context of a lease has the lease's task; a context without
// a task gets a random one with its first lock.
//
// A task is one line of work, which does not wait for itself. If a task asks for a lock that it
// holds, the client refuses with ErrSelfDeadlock, even where the lease's context is not passed on.
// Without a name the client does not notice such a wait, and the wait never ends.
func Task(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, taskKey{}, name)
}

type taskKey struct{}
