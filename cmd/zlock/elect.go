package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func electCommand() *command {
	return &command{
		Name: "elect", Args: "PATH -- COMMAND [ARG…]", Paths: true, Least: 1, Most: 1, Runs: true,
		Does: "run a command while being the leader",
		Help: `Candidates queue at PATH; the first one leads until its COMMAND ends. Apart from
that everything is as with run, exit codes included.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
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
	j, err := c.begin(run, conn, f.killAfter, false)
	if err != nil {
		return asExit(err)
	}
	defer func() { j.end() }()
	for {
		lease, err := f.campaign(client.Task(j.ctx, j.task), j.cl, c.Args[0])
		if err != nil {
			return asExit(err)
		}
		s := &supervisor{what: c.Args[0]}
		code, err := j.under(lease, s)
		if err != nil {
			return asExit(err)
		}
		if !f.restart || s.told {
			return cli.Exit(code)
		}
		run.readyFD = -1 // report ready only once
		j.ctx, j.stop = interruptible()
		select {
		case <-j.ctx.Done():
			return asExit(context.Cause(j.ctx))
		case <-time.After(restartPause):
		}
	}
}

// restartPause keeps zlock from spinning if COMMAND ends at once.
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
	lease, err := cl.Election(path, opts...).Campaign(wait, []byte(f.value), client.WithLimit(client.Limit{
		Linger: true}))
	switch {
	case err == nil:
		return lease, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, cli.Exit(exitNotAcquired)
	}
	return nil, err
}
