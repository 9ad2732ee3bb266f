package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
)

func lsCommand() *command {
	return &command{
		name: "ls", args: "[ROOT]", paths: true,
		does: "list the locks directly below a path",
		help: `With -o plain the columns are: path, layout, holders, waiters, oldest wait in
seconds, kind.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			l := &lister{}
			fs.BoolVarP(&l.deep, "recursive", "R", false, "list all locks below ROOT, at any depth")
			fs.BoolVar(&l.held, "held", false, "list only locks that somebody holds")
			fs.BoolVar(&l.watch, "watch", false, "list again every two seconds until interrupted")
			format := addFormat(fs)
			conn := addConnectFlags(fs)
			return func(c *call) error {
				if err := c.operands(0, 1); err != nil {
					return err
				}
				l.root = "/"
				if len(c.args) == 1 {
					l.root = c.args[0]
				}
				return c.withClient(conn, func(ctx context.Context, cl *client.Client) error {
					return l.run(ctx, c, cl, *format)
				})
			}
		},
	}
}

type lister struct {
	root              string
	deep, held, watch bool
}

// listed is a line of ls as JSON has it.
type listed struct {
	Path       string  `json:"path"`
	Kind       string  `json:"kind"`
	Layout     string  `json:"layout"`
	Holders    int     `json:"holders"`
	Waiters    int     `json:"waiters"`
	OldestWait float64 `json:"oldestWaitSeconds"`
}

func (l *lister) run(ctx context.Context, c *call, cl *client.Client, format string) error {
	ctx, stop := c.whileRead(ctx)
	defer stop()
	for {
		if l.watch && format == formatTable && c.terminal {
			c.stdout.Write([]byte("\x1b[H\x1b[2J"))
		}
		if err := l.once(ctx, c, cl, format); err != nil || !l.watch {
			if err != nil && ctx.Err() != nil {
				return asExit(context.Cause(ctx))
			}
			return err
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil // the user has seen enough
		}
	}
}

func (l *lister) once(ctx context.Context, c *call, cl *client.Client, format string) error {
	p := c.printer(format, "PATH", "LAYOUT", "HOLDERS", "WAITERS", "OLDEST-WAIT")
	depth := 1
	if l.deep {
		depth = -1
	}
	err := cl.WalkDepth(ctx, l.root, depth, func(q *client.Queue) error {
		if l.held && len(q.Holders) == 0 {
			return nil
		}
		line := listed{Path: q.Path, Kind: q.Kind, Layout: q.LayoutName, Holders: len(q.Holders), Waiters: len(q.Waiters)}
		wait := ""
		for _, e := range q.Waiters {
			if age := time.Since(e.WaitingSince); age.Seconds() > line.OldestWait {
				line.OldestWait = float64(age.Milliseconds()) / 1000
				wait = max(age, 0).Truncate(time.Second).String()
			}
		}
		if format == formatPlain {
			wait = strconv.FormatFloat(line.OldestWait, 'f', -1, 64)
			p.row(line, q.Path, q.LayoutName, strconv.Itoa(line.Holders), strconv.Itoa(line.Waiters), wait, q.Kind)
			return nil
		}
		p.row(line, q.Path, q.LayoutName, strconv.Itoa(line.Holders), strconv.Itoa(line.Waiters), wait)
		return nil
	})
	return errors.Join(err, p.flush())
}
