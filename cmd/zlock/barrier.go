package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func barrierCommand() *command {
	return &command{
		Name: "barrier", Args: "wait|close|open PATH, or enter --count N PATH -- COMMAND",
		Paths: true, Most: -1, Runs: true, Words: []string{"wait", "close", "open", "enter"},
		Does: "wait at a barrier, close or open one, or begin together with others",
		Help: `wait returns when the barrier is open. enter waits until N processes have entered,
runs COMMAND, and waits until all have left. Exit code: 0 or COMMAND's, 124 if -w
is over.`,
		Setup: func(fs *pflag.FlagSet) func(*call) error {
			b := &barrierFlags{}
			addDuration(fs, &b.timeout, "timeout", "w", "wait no longer than this")
			fs.IntVar(&b.count, "count", 0, "`N` processes begin and end together")
			conn := addConnectFlags(fs)
			return func(c *call) error {
				if err := noTry(fs, b.timeout); err != nil {
					return err
				}
				return c.barrier(b, conn)
			}
		},
	}
}

type barrierFlags struct {
	timeout time.Duration
	count   int
}

func (c *call) barrier(b *barrierFlags, conn *connectFlags) error {
	if len(c.Args) == 0 {
		return cli.Usagef("say wait, close, open or enter")
	}
	what := c.Args[0]
	c.Args = c.Args[1:]
	if what == "enter" {
		return c.enterBarrier(b, conn)
	}
	if len(c.Args) != 1 || c.Dashed != nil {
		return cli.Usagef("%s needs one PATH", what)
	}
	path := c.Args[0]
	if b.timeout == 0 && what != "wait" {
		conn.timeout = answerTimeout
	}
	return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
		bar := cl.Barrier(path)
		step := map[string]func(context.Context) error{"wait": bar.Wait, "close": bar.Close, "open": bar.Open}[what]
		if step == nil {
			return cli.Usagef("%q is none of wait, close, open, enter", what)
		}
		return waiting(ctx, b.timeout, exitNotAcquired, step)
	})
}

func (c *call) enterBarrier(b *barrierFlags, conn *connectFlags) error {
	if len(c.Args) != 1 || b.count < 1 {
		return cli.Usagef("enter needs --count N and one PATH")
	}
	exe, err := findExecutable(c.Dashed, "")
	if err != nil {
		return err
	}
	path := c.Args[0]
	return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
		var member *client.Member
		err := waiting(ctx, b.timeout, exitNotAcquired, func(ctx context.Context) (err error) {
			member, err = cl.DoubleBarrier(path, b.count).Enter(ctx)
			return err
		})
		if err != nil {
			return err
		}
		code, err := runPlain(exe)
		if err != nil {
			return err
		}
		if err := waiting(ctx, b.timeout, exitNotAcquired, member.Leave); err != nil {
			return err
		}
		return cli.Exit(code)
	})
}
