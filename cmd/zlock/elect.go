package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
)

func electCommand() *command {
	return &command{
		name: "elect", args: "PATH -- COMMAND [ARG…]", paths: true,
		does: "run a command while being the leader",
		help: `Candidates queue at PATH; the first one leads until its COMMAND ends. Apart from
that everything is as with run, exit codes included.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			f := &electFlags{killAfter: 5 * time.Second}
			host, _ := os.Hostname()
			fs.StringVar(&f.value, "value", host, "`TEXT` that others see as the leader's")
			fs.BoolVar(&f.restart, "restart", false, "when COMMAND ends, or the leadership is lost, campaign again")
			fs.BoolVar(&f.latch, "latch", false, "be compatible with Curator's LeaderLatch instead of LeaderSelector")
			addDuration(fs, &f.timeout, "timeout", "w", "wait no longer than this")
			run := addRunFlags(fs, &f.killAfter)
			conn := addConnectFlags(fs)
			return func(c *call) error {
				if err := noTry(fs, f.timeout); err != nil {
					return err
				}
				return c.elect(f, run, conn)
			}
		},
	}
}

type electFlags struct {
	value          string
	restart, latch bool
	timeout        time.Duration
	killAfter      time.Duration
}

func (c *call) elect(f *electFlags, run *runFlags, conn *connectFlags) error {
	if len(c.args) != 1 {
		return usagef("exactly one PATH is needed")
	}
	loss, err := run.loss(f.killAfter, false)
	if err != nil {
		return err
	}
	exe, err := findExecutable(c.dashed, run.shell)
	if err != nil {
		return err
	}
	if loss.onLost != 0 {
		conn.margin = marginFor(f.killAfter)
		if err := checkMargin(true, conn.sessionTimeout, f.killAfter); err != nil {
			return err
		}
	}
	servers, chroot, err := conn.address(c.getenv)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	cl, err := c.connect(ctx, conn)
	if err != nil {
		return asExit(err)
	}
	defer c.disconnect(cl)
	if loss.onLost != 0 {
		if err := checkMargin(false, cl.Session().Timeout, f.killAfter); err != nil {
			return err
		}
	}
	if err := c.refuseInherited(ctx, cl, chroot, c.args); err != nil {
		return err
	}
	for {
		lease, err := f.campaign(ctx, cl, c.args[0])
		if err != nil {
			return asExit(err)
		}
		sigs := listenForCommand() // from here on they are COMMAND's
		stop()
		if err := interrupted(ctx); err != nil {
			sigs.stop()
			c.giveBack(lease.Unlock)
			return asExit(err)
		}
		s := &supervisor{app: c.app, lossFlags: loss, lease: lease, foreground: run.inForeground(c.app), contained: run.contain, what: c.args[0]}
		locks := heldOf(lease)
		code, err := s.run(sigs, exe.path, exe.argv, environ(os.Environ(), servers, chroot, taskOf(c.getenv), locks, c.getenv), func() error {
			return run.ready("locked " + locks[0].seq.Token.String())
		})
		code = s.release(code)
		if err != nil {
			return err
		}
		if !f.restart || s.told {
			return exit(code)
		}
		run.readyFD = -1 // said once
		ctx, stop = interruptible()
		select {
		case <-ctx.Done():
			return asExit(context.Cause(ctx))
		case <-time.After(restartPause):
		}
	}
}

// restartPause keeps a COMMAND that ends at once from spinning.
const restartPause = 500 * time.Millisecond

func (f *electFlags) campaign(ctx context.Context, cl *client.Client, path string) (*client.Lease, error) {
	wait := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, f.timeout, errTimeout)
		defer cancel()
	}
	var opts []client.Option
	if f.latch {
		opts = append(opts, client.WithLayout(client.LayoutLatch))
	}
	lease, err := cl.Election(path, opts...).Campaign(wait, []byte(f.value), client.WithLimit(client.Limit{Linger: true}))
	switch {
	case err == nil:
		return lease, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, exit(exitNotAcquired)
	}
	return nil, err
}
