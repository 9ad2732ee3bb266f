package manage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Break is zlock break.
func Break() *call.Command {
	return &call.Command{
		Name: "break", Args: "PATH NODE", Paths: true, Least: 2, Most: 2,
		Does: "remove the node of a holder or waiter",
		Help: `The holder loses the lock, perhaps in the middle of its work: try revoke first. The
token, which 'zlock show -o plain' prints, makes sure that the command does not break a
later hold. With --expired it removes the node only if the holder has recorded there that
its maximum hold is over, because its work does not end. Exit code: 0, 1 if the lock has
another hold by now or the hold is not expired, 125 usage error, 2 other errors.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			token := fs.String("token", "", "`TOKEN` of the hold; required")
			yes := fs.Bool("yes", false, "do not ask")
			expired := fs.Bool("expired", false, "remove the node only if its holder says that its maximum "+
				"hold is over")
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				return call.OnlyNo(breakNode(c, conn, *token, *yes, *expired))
			}
		},
	}
}

func breakNode(c *call.Call, conn *connect.Flags, token string, yes, expired bool) error {
	t, err := fence.ParseToken(token)
	if err != nil {
		return cli.Usagef("--token is required: %v", err)
	}
	path, node := c.Args[0], c.Args[1]
	if !yes {
		if !call.IsTerminal(c.Stdin) {
			return cli.Usagef("standard input is not a terminal: give --yes")
		}
		fmt.Fprintf(c.Stderr, "Remove %s of %s? Its holder is not asked. [y/N] ", call.Clean(node),
			call.Clean(path))
		answer, _ := bufio.NewReader(c.Stdin).ReadString('\n')
		if !strings.EqualFold(strings.TrimSpace(answer), "y") && !strings.EqualFold(strings.TrimSpace(answer),
			"yes") {
			return cli.Exitf(call.ExitNo, "not removed")
		}
	}
	return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
		if expired {
			err = cl.Inspector().BreakExpired(ctx, path, node, t)
		} else {
			err = cl.Inspector().Break(ctx, path, node, t)
		}
		switch {
		case errors.Is(err, fence.ErrStale), errors.Is(err, client.ErrNotHeld),
			errors.Is(err, client.ErrNotAcquired):
			return cli.Exitf(call.ExitNo, "%v", err)
		}
		return err
	})
}
