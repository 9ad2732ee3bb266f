package manage

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/server/view/answer"
)

// EndSession is zlock end-session.
func EndSession() *call.Command {
	return &call.Command{
		Name: "end-session", Args: "ID", Least: 1, Most: 1,
		Does: "end a session of a zlockd, and with it the locks it holds",
		Help: `Without --yes only shows the affected clients and locks. Needs the password of
the servers' --super-digest in --auth-file. Exit code: 0, or 1 if the server refuses.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			yes := fs.Bool("yes", false, "do it")
			f := connect.AddAdminFlags(fs, true)
			return func(c *call.Call) error {
				return connect.WithAdmin(c, f, func(ctx context.Context, a connect.Admin) error {
					return endSession(ctx, c, a, c.Args[0], *yes)
				})
			}
		},
	}
}

func endSession(ctx context.Context, c *call.Call, a connect.Admin, id string, yes bool) error {
	var page struct {
		Token string `json:"token"`
	}
	if err := a.Ask(ctx, "/overview", nil, &page); err != nil {
		return err
	}
	a.Token = page.Token
	body := map[string]any{"session": id, "dryRun": !yes}
	var done answer.Done
	if err := a.Do(ctx, http.MethodPost, "/actions/end-session", body, &done); err != nil {
		return err
	}
	verb := "did: "
	if !yes {
		verb = "would "
	}
	fmt.Fprintf(c.Stdout, "%s%s\n", verb, call.Clean(done.Does))
	for _, h := range done.Hits {
		who := strings.Join(strings.Fields(h.Host+" "+h.Session+" "+h.Addr), " ")
		fmt.Fprintf(c.Stdout, "  %s: %s\n", call.Clean(who), call.Clean(h.What))
	}
	if !yes {
		c.Say("nothing was done; add --yes to do it")
	}
	return nil
}
