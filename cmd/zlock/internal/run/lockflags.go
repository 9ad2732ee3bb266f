// Package run runs a COMMAND under a lock or under the hold of a ticket (run, elect), or holds a lock until
// standard input ends (hold). Package supervise makes sure that COMMAND does not outlive the lock.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// lockFlags are the options of the commands that take locks.
type lockFlags struct {
	exclusive, shared  bool
	readwrite          bool
	semaphore, permits int
	needSlot           bool
	nonblock           bool
	timeout            time.Duration
	conflict           int
	policy, layout     string
	maxHold, lockDelay time.Duration
	revocable          time.Duration
	reason             string
	killAfter          time.Duration
	fs                 *pflag.FlagSet
}

func addLockFlags(fs *pflag.FlagSet) *lockFlags {
	f := &lockFlags{fs: fs, permits: 1, conflict: call.ExitNotAcquired, killAfter: 5 * time.Second}
	fs.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock alone (default)")
	fs.BoolVarP(&f.shared, "shared", "s", false, "share the lock with others who share it")
	fs.BoolVar(&f.readwrite, "rw", false,
		"PATH is a read-write lock, as other programs know it (Curator's __WRIT__ and __READ__ nodes)")
	fs.IntVar(&f.semaphore, "semaphore", 0, "PATH is a semaphore; store `N` as its number of permits "+
		"if none is stored yet; 0: use the stored number")
	fs.IntVar(&f.permits, "permits", 1, "take `K` permits of the semaphore")
	fs.BoolVar(&f.needSlot, "need-slot", false,
		"fail and give the permits back if they have no numbers (ZLOCK_SLOT), because another program "+
			"uses permits without numbers")
	fs.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait")
	call.AddDuration(fs, &f.timeout, "timeout", "w", "wait no longer than this")
	fs.IntVarP(&f.conflict, "conflict-exit-code", "E", call.ExitNotAcquired,
		"exit with `CODE` when the lock is not acquired (-n, -w)")
	fs.Var(cli.NewChoice(&f.policy, "fair", "reader", "writer"), "policy",
		"whether readers or writers go first; all users of PATH must choose the same")
	fs.Var(cli.NewChoice(&f.layout, "curator", "kazoo", "host"), "layout",
		"how nodes are named, and so which other programs can share the lock (default curator)")
	call.AddDuration(fs, &f.maxHold, "max-hold", "", "hold no longer than this")
	call.AddDuration(fs, &f.lockDelay, "lock-delay", "",
		"wait this long after a holder that vanished without a release; all users must set it")
	call.AddDuration(fs, &f.revocable, "revocable", "",
		"give the lock back within this time when 'zlock revoke' asks for it")
	fs.StringVar(&f.reason, "reason", "", "`TEXT` that others see")
	return f
}

// check() refuses contradictory flags.
func (f *lockFlags) check() error {
	given := f.fs.Changed
	switch {
	case f.exclusive && f.shared:
		return cli.Usagef("-x and -s exclude each other")
	case f.nonblock && given("timeout"):
		return cli.Usagef("-n and -w exclude each other")
	case f.semaphore < 0:
		return cli.Usagef("--semaphore must not be negative")
	case f.permitsWanted() && (f.shared || f.exclusive || f.readwrite || f.policy != "" || given("lock-delay")):
		return cli.Usagef("--semaphore cannot be combined with -x, -s, --rw, --policy or --lock-delay")
	case given("permits") && !f.permitsWanted():
		return cli.Usagef("--permits needs --semaphore")
	case f.needSlot && !f.permitsWanted():
		return cli.Usagef("--need-slot needs --semaphore")
	case f.permits < 1:
		return cli.Usagef("--permits must be at least 1")
	case f.policy != "" && f.layout != "":
		return cli.Usagef("--policy has a layout of its own; leave out --layout")
	case f.permitsWanted() && f.layout == "host":
		return cli.Usagef("the host layout has no semaphores")
	case given("max-hold") && f.maxHold <= 0:
		return cli.Usagef("--max-hold must be positive")
	case f.conflict < 0 || f.conflict > 255:
		return cli.Usagef("--conflict-exit-code must be between 0 and 255")
	}
	return nil
}

// isRevocable reports whether zlock gives up the lock when another client asks for it.
func (f *lockFlags) isRevocable() bool { return f.fs.Changed("revocable") }

// permitsWanted reports whether the paths are semaphores.
func (f *lockFlags) permitsWanted() bool { return f.fs.Changed("semaphore") }

// mode() is the mode of the locks.
func (f *lockFlags) mode() fence.Mode {
	switch {
	case f.permitsWanted():
		return fence.Permit
	case f.shared:
		return fence.Shared
	}
	return fence.Exclusive
}

// options() turns the flags into options of the client.
func (f *lockFlags) options() []client.Option {
	// COMMAND still runs for a moment after a loss. WithLinger keeps the nodes of a lost lock until zlock has
	// released it.
	opts := append(connect.LayoutOption(f.layout), client.WithLinger())
	if f.reason != "" {
		opts = append(opts, client.WithReason(f.reason))
	}
	if p, err := recipe.ParsePolicy(f.policy); err == nil {
		opts = append(opts, client.WithPolicy(p))
	}
	if f.maxHold > 0 {
		// The limit stands in the contender's node. If zlock fails to end COMMAND in time, an operator may break
		// the lock.
		opts = append(opts, client.WithMaxHold(f.maxHold, f.killAfter+2*time.Second))
	}
	if f.lockDelay > 0 {
		opts = append(opts, client.WithLockDelay(f.lockDelay))
	}
	if f.isRevocable() {
		opts = append(opts, client.WithRevocable(f.revocable))
	}
	return opts
}

// acquire() takes one lock or several.
func (f *lockFlags) acquire(ctx context.Context, t *waitTeller, task string, paths []string) (
	*client.Lease, error) {
	ctx = client.Task(ctx, task)
	try := f.nonblock || f.fs.Changed("timeout") && f.timeout == 0
	if f.nonblock {
		var cancel context.CancelFunc
		ctx, cancel = connect.AnswerWithin(ctx, connect.AnswerTimeout)
		defer cancel()
	}
	var lease *client.Lease
	err := t.during(ctx, f.conflict, func() error {
		return waiting(ctx, f.timeout, f.conflict, func(ctx context.Context) (err error) {
			if lease, err = f.take(ctx, t, paths, try); errors.Is(err, client.ErrNotAcquired) {
				err = &cli.ExitError{Code: f.conflict} // not cli.Exit: it returns nil if the user chose the code 0
			}
			return err
		})
	})
	if err == nil && f.needSlot {
		if _, err = lease.Slots(); err != nil {
			_ = lease.Release() // if this fails, the end of the session releases the lock
		}
	}
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, client.ErrInvalid):
		return nil, cli.Usagef("%v", err)
	case errors.Is(err, client.ErrMixedLayout) && !f.readwrite && !f.shared && f.layout == "" &&
		!f.permitsWanted():
		return nil, fmt.Errorf(
			"%w (use --rw for the write lock of a read-write lock, --layout or --semaphore for other locks)",
			err)
	}
	return nil, err
}

// take takes all locks, or none.
func (f *lockFlags) take(ctx context.Context, t *waitTeller, paths []string, try bool) (*client.Lease,
	error) {
	c, opts := t.cl, append(f.options(), t.option())
	reqs := make([]client.Request, len(paths))
	for i, p := range paths {
		switch {
		case f.permitsWanted():
			reqs[i] = c.Semaphore(p, f.semaphore, opts...).Request(f.permits)
		case f.shared || f.readwrite || f.policy != "" || f.layout == "host":
			reqs[i] = c.RWMutex(p, opts...).Request(f.mode())
		default:
			reqs[i] = c.Mutex(p, opts...).Request()
		}
	}
	if try {
		return c.TryAll(ctx, reqs...)
	}
	return c.All(ctx, reqs...)
}

// describe() names the locks in messages.
func describe(paths []string) string {
	if len(paths) == 1 {
		return paths[0]
	}
	return fmt.Sprintf("%s and %d more", paths[0], len(paths)-1)
}
