package main

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
)

func limitCommand() *command {
	return &command{
		name: "limit", args: "PATH N", paths: true,
		does: "set how many permits a semaphore has",
		help: `The semaphore's waiters see the change at once. A lower number takes no permit away:
the number in use shrinks as holders give their permits back.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			layout := ""
			fs.Var(cli.NewChoice(&layout, "curator", "kazoo"), "layout", "how nodes are named (default curator)")
			conn := addAskFlags(fs)
			return func(c *call) error {
				if err := c.operands(2, 2); err != nil {
					return err
				}
				n, err := strconv.Atoi(c.args[1])
				if err != nil || n < 1 {
					return usagef("the number of permits must be at least 1")
				}
				var opts []client.Option
				if l, err := recipe.ParseLayout(layout); err == nil && layout != "" {
					opts = append(opts, client.WithLayout(l))
				}
				return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
					return cl.Semaphore(c.args[0], n, opts...).SetLimit(ctx, n)
				})
			}
		},
	}
}
