package look

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Leader is zlock leader.
func Leader() *call.Command {
	return &call.Command{
		Name: "leader", Args: "PATH", Paths: true, Least: 1, Most: 1,
		Does:   "show who leads an election",
		Prints: []any{shownLeader{}},
		Help: `Exit code: 0, or 1 if there is no leader. With -o plain the columns are: value, since,
token, session, node. With --watch a line is written for each change; a line
without a value says that there is no leader.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			watch := fs.Bool("watch", false, "write each new leader until interrupted")
			format := call.AddFormat(fs)
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				if *watch {
					conn.Timeout = 0
				}
				return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
					el := cl.Election(c.Args[0])
					if *watch {
						ctx, stop := c.WhileRead(ctx)
						defer stop()
						// Observe does not return the error of a failed read, but tries again. Read the leader once before it:
						// then the user sees an error, for example if the path has no election.
						if _, err := el.Leader(ctx); err != nil {
							return err
						}
						for l := range el.Observe(ctx) {
							if l.Err != nil {
								return l.Err
							}
							if err := showLeader(c, l, *format); err != nil {
								return err
							}
						}
						return context.Cause(ctx)
					}
					l, err := el.Leader(ctx)
					if err != nil {
						return err
					}
					if l.None() {
						return cli.Exit(call.ExitNo)
					}
					return showLeader(c, l, *format)
				})
			}
		},
	}
}

// shownLeader is a leader in JSON.
type shownLeader struct {
	Value   string `json:"value"`
	Since   string `json:"since,omitempty"`
	Token   string `json:"token,omitempty"`
	Session string `json:"session,omitempty"`
	Node    string `json:"node,omitempty"`
}

func showLeader(c *call.Call, l client.Leader, format string) error {
	p := c.Printer(format, "VALUE", "SINCE", "TOKEN", "SESSION")
	if l.None() {
		p.Row(shownLeader{}, "", "", "", "")
		return p.Flush()
	}
	s := shownLeader{string(l.Value), call.Stamp(l.Since), l.Token.String(), recipe.Session(l.Session).String(),
		l.Node}
	p.Row(s, s.Value, l.Since, s.Token, s.Session, s.Node)
	return p.Flush()
}
