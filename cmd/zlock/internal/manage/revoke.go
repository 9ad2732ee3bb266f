package manage

import (
	"context"
	"errors"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Revoke is zlock revoke.
func Revoke() *call.Command {
	return &call.Command{
		Name: "revoke", Args: "PATH [NODE]", Paths: true, Least: 1, Most: 2,
		Does: "ask the holders of a lock to give it back",
		Help: `This is a request: the holder decides. With NODE it asks only that contender, which may
also be a waiter. Exit code: 0, or 1 if there is no contender to ask, or if the lock was
not released within --wait.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			var wait time.Duration
			call.AddDuration(fs, &wait, "wait", "", "wait this long for the release")
			reason := fs.String("reason", "", "`TEXT` that the holder sees")
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				r := recipe.Revocation{By: me(), Reason: *reason}
				if wait > 0 {
					if conn.Timeout > 0 {
						conn.Timeout += wait
					}
					r.Deadline = time.Now().Add(wait).UTC().Truncate(time.Second)
				}
				return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
					return revoke(ctx, c, cl, r, wait)
				})
			}
		},
	}
}

// me() returns the name of this user, as the holder of a revoked lock sees it.
func me() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username + "@" + host
	}
	return host
}

func revoke(ctx context.Context, c *call.Call, cl *client.Client, r recipe.Revocation,
	wait time.Duration) error {
	path := c.Args[0]
	nodes := c.Args[1:]
	if len(nodes) == 0 {
		q, err := cl.Inspector().Inspect(ctx, path)
		if err != nil {
			return err
		}
		for _, e := range q.Holders {
			nodes = append(nodes, e.Node)
		}
	}
	if len(nodes) == 0 {
		return cli.Exitf(call.ExitNo, "no client holds %s", path)
	}
	asked := false
	for _, n := range nodes {
		err := cl.Inspector().Revoke(ctx, path, n, r)
		if err != nil && !errors.Is(err, client.ErrNotHeld) {
			return err
		}
		asked = asked || err == nil // an error: this holder has gone, so there is nothing to ask
	}
	if !asked {
		return cli.Exitf(call.ExitNo, "%s has no contender %s", path, strings.Join(nodes, " or "))
	}
	if wait <= 0 {
		return nil
	}
	for end := time.Now().Add(wait); ; {
		q, err := cl.Inspector().Inspect(ctx, path)
		if err != nil || !slices.ContainsFunc(append(q.Holders, q.Waiters...), func(e recipe.Entry) bool {
			return slices.Contains(nodes, e.Node)
		}) {
			return err
		}
		if time.Now().After(end) {
			return cli.Exitf(call.ExitNo, "%s was not released within %v", path, wait)
		}
		if err := call.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
