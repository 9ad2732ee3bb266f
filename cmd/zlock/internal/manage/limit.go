package manage

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Limit is zlock limit.
func Limit() *call.Command {
	return &call.Command{
		Name: "limit", Args: "PATH N", Paths: true, Least: 2, Most: 2,
		Does: "set how many permits a semaphore has",
		Help: `The semaphore's waiters see the change at once. A lower number takes no permit away:
the number in use shrinks as holders give their permits back.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			layout := ""
			fs.Var(cli.NewChoice(&layout, "curator", "kazoo"), "layout", "how nodes are named (default curator)")
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				n, err := strconv.Atoi(c.Args[1])
				if err != nil || n < 1 {
					return cli.Usagef("the number of permits must be at least 1")
				}
				opts := connect.LayoutOption(layout)
				return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
					return cl.Semaphore(c.Args[0], n, opts...).SetPermits(ctx, n)
				})
			}
		},
	}
}
