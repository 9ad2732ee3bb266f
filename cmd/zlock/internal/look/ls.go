package look

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/server/view/answer"
)

// List is zlock ls.
func List() *call.Command {
	return &call.Command{
		Name: "ls", Args: "[ROOT]", Paths: true, Most: 1,
		Does:   "list the locks directly below a path",
		Prints: []any{listed{}, incomplete{}},
		Help: `With -o plain the columns are: path, layout, holders, waiters, oldest wait in
seconds, kind.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			l := &lister{}
			fs.BoolVarP(&l.deep, "recursive", "R", false, "list all locks below ROOT, at any depth")
			fs.BoolVar(&l.held, "held", false, "list only locks that are held")
			fs.BoolVar(&l.watch, "watch", false, "list again every two seconds until interrupted")
			format := call.AddFormat(fs)
			server := addServerFlags(fs)
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				l.root = "/"
				if len(c.Args) == 1 {
					l.root = c.Args[0]
				}
				if l.watch {
					conn.Timeout = 0
				}
				return look(c, server, conn, func(ctx context.Context, r reader) error {
					return l.run(ctx, c, *format, r)
				})
			}
		},
	}
}

type lister struct {
	root              string
	deep, held, watch bool
}

// The type listed is a line of ls in JSON.
type listed struct {
	Path       string      `json:"path"`
	Kind       recipe.Kind `json:"kind"`
	Layout     string      `json:"layout"`
	Holders    int         `json:"holders"`
	Waiters    int         `json:"waiters"`
	OldestWait float64     `json:"oldestWaitSeconds"`
	HeldTwice  bool        `json:"heldTwice,omitempty"`
}

func (l *lister) run(ctx context.Context, c *call.Call, format string, r reader) error {
	ctx, stop := c.WhileRead(ctx)
	defer stop()
	for {
		if l.watch && format == call.Table && c.Terminal {
			_, _ = c.Stdout.Write([]byte("\x1b[H\x1b[2J"))
		}
		if err := l.once(ctx, c, format, r); err != nil || !l.watch {
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if call.Sleep(ctx, 2*time.Second) != nil {
			return nil // no error: this is how the user, or --timeout, ends a watch
		}
	}
}

func (l *lister) once(ctx context.Context, c *call.Call, format string, r reader) error {
	p := c.Printer(format, "PATH", "LAYOUT", "HOLDERS", "WAITERS", "OLDEST-WAIT")
	found := false
	var twice []string
	err := r.eachLock(ctx, l.root, l.deep, func(k *answer.Lock) {
		if l.held && k.HolderCount == 0 {
			return
		}
		found = true
		if k.HeldTwice {
			twice = append(twice, call.Clean(k.Path)+" ("+k.Layout()+")")
		}
		line := listed{Path: k.Path, Kind: k.Kind, Layout: k.Layout(), Holders: k.HolderCount,
			Waiters: k.WaiterCount, HeldTwice: k.HeldTwice}
		var wait any = ""
		if k.OldestWait != 0 {
			waits := max(0, time.Since(time.UnixMilli(k.OldestWait)).Truncate(time.Millisecond))
			line.OldestWait, wait = float64(waits.Milliseconds())/1000, waits.Truncate(time.Second)
		}
		if format == call.Plain {
			wait = strconv.FormatFloat(line.OldestWait, 'f', -1, 64)
		}
		p.Row(line, line.Path, line.Layout, line.Holders, line.Waiters, wait, line.Kind)
	})
	switch {
	case err != nil || found || format != call.Table:
	case l.held:
		c.Say("no locks that are held")
	case l.deep:
		c.Say("no locks")
	default:
		c.Say("no locks at %s or directly below it; -R looks deeper", l.root)
	}
	tellLeft(c, p, r)
	err = errors.Join(err, p.Flush())
	for _, t := range twice {
		c.Say("%s is held twice, by programs that do not see each other", t)
	}
	return err
}
