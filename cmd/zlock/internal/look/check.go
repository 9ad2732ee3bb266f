package look

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Check is zlock check.
func Check() *call.Command {
	return &call.Command{
		Name: "check", Args: "PATH", Paths: true, Most: 1,
		Does: "ask whether a hold is current",
		Help: `Exit code: 0 the hold is current, 1 it is not, 2 no answer, 125 usage
error.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			token := fs.String("token", "", "`TOKEN` of the hold")
			seq := fs.String("sequencer", "", "`SEQUENCER` of the hold; PATH may then be omitted")
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				return call.OnlyNo(checkHold(c, conn, *token, *seq))
			}
		},
	}
}

func checkHold(c *call.Call, conn *connect.Flags, token, sequencer string) error {
	if (token == "") == (sequencer == "") {
		return cli.Usagef("give either --token or --sequencer")
	}
	var s fence.Sequencer
	var t fence.Token
	var err error
	if sequencer != "" {
		if s, err = fence.ParseSequencer(sequencer); err != nil {
			return cli.Usagef("%v", err)
		}
		if len(c.Args) == 1 && c.Args[0] != s.Path {
			return cli.Usagef("the sequencer belongs to %s", s.Path)
		}
	} else {
		if len(c.Args) == 0 {
			return cli.Usagef("no PATH")
		}
		if t, err = fence.ParseToken(token); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	return connect.WithSession(c, conn, func(ctx context.Context, cl *client.Client) error {
		if sequencer != "" {
			err := cl.CheckSequencer(ctx, s)
			if errors.Is(err, fence.ErrStale) {
				return cli.Exit(call.ExitNo)
			}
			return err
		}
		q, err := cl.Inspector().Inspect(ctx, c.Args[0])
		if err != nil {
			return err
		}
		for _, e := range q.Holders {
			if e.Token == int64(t) {
				return nil
			}
		}
		return cli.Exit(call.ExitNo)
	})
}
