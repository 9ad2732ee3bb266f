package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
)

func checkCommand() *command {
	return &command{
		name: "check", args: "PATH", paths: true,
		does: "ask whether a hold is current",
		help: `Exit code: 0 it is, 1 it is not, 2 that could not be found out, 125
usage error.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			token := fs.String("token", "", "`TOKEN` of the hold")
			seq := fs.String("sequencer", "", "`SEQUENCER` of the hold; PATH may be left away then")
			conn := addAskFlags(fs)
			return func(c *call) error {
				err := c.check(conn, *token, *seq)
				var e *exitError
				if err != nil && !(errors.As(err, &e) && e.code == exitNo) {
					err = &exitError{2, err}
				}
				return err
			}
		},
	}
}

func (c *call) check(conn *connectFlags, token, sequencer string) error {
	if (token == "") == (sequencer == "") {
		return usagef("one of --token and --sequencer is needed")
	}
	if err := c.operands(0, 1); err != nil {
		return err
	}
	var s fence.Sequencer
	var t fence.Token
	var err error
	if sequencer != "" {
		if s, err = fence.ParseSequencer(sequencer); err != nil {
			return usagef("%v", err)
		}
		if len(c.args) == 1 && c.args[0] != s.Path {
			return usagef("the sequencer is of %s", s.Path)
		}
	} else {
		if len(c.args) == 0 {
			return usagef("no PATH")
		}
		if t, err = fence.ParseToken(token); err != nil {
			return usagef("%v", err)
		}
	}
	return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
		if sequencer != "" {
			err := cl.CheckSequencer(ctx, s)
			if errors.Is(err, fence.ErrStale) {
				return exit(exitNo)
			}
			return err
		}
		q, err := cl.Inspector().Inspect(ctx, c.args[0])
		if err != nil {
			return err
		}
		for _, e := range q.Holders {
			if e.Token == int64(t) {
				return nil
			}
		}
		return exit(exitNo)
	})
}
