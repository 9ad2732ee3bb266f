//go:build !windows

package run

import (
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Elect is zlock elect.
func Elect() *call.Command {
	return &call.Command{
		Name: "elect", Args: "PATH -- COMMAND [ARG…]", Paths: true, Least: 1, Most: 1, Runs: true,
		Does: "run a command while being the leader",
		Help: `Candidates queue at PATH; the first one leads until its COMMAND ends. Otherwise
elect works like run, with the same exit codes.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			f := &electFlags{killAfter: 5 * time.Second}
			host, _ := os.Hostname()
			fs.StringVar(&f.value, "value", host, "`TEXT` that other clients see while this one leads")
			fs.BoolVar(&f.restart, "restart", false, "when COMMAND ends, or the leadership is lost, campaign again")
			fs.BoolVar(&f.latch, "latch", false, "be compatible with Curator's LeaderLatch instead of LeaderSelector")
			call.AddDuration(fs, &f.timeout, "timeout", "w", "wait no longer than this")
			run := addRunFlags(fs, &f.killAfter)
			conn := connect.AddFlags(fs)
			return func(c *call.Call) error {
				if err := noTry(fs, f.timeout); err != nil {
					return err
				}
				return elect(c, f, run, conn)
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

func elect(c *call.Call, f *electFlags, run *runFlags, conn *connect.Flags) error {
	j, err := begin(c, run, conn, f.killAfter, false, fence.Exclusive)
	if err != nil {
		return err
	}
	var opts []client.Option
	if f.latch {
		opts = append(opts, client.WithLayout(client.LayoutLatch))
	}
	election := j.cl.Election(c.Args[0], opts...)
	return j.repeat(f.restart, func(ctx context.Context) (lease *client.Lease, err error) {
		t := newWaitTeller(c.App, j.cl, conn.Quiet)
		err = t.during(ctx, call.ExitNotAcquired, func() error {
			ctx := client.Task(ctx, j.task)
			return waiting(ctx, f.timeout, call.ExitNotAcquired, func(ctx context.Context) error {
				lease, err = election.Campaign(ctx, []byte(f.value), client.WithLinger(), t.option())
				return err
			})
		})
		return lease, err
	})
}

// noTry refuses -w 0 for commands that cannot give up at once: their limit 0 would mean no limit.
func noTry(fs *pflag.FlagSet, wait time.Duration) error {
	if fs.Changed("timeout") && wait == 0 {
		return cli.Usagef("-w must be positive")
	}
	return nil
}
