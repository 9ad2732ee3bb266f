package look

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
)

// Show is zlock show.
func Show() *call.Command {
	return queueCommand("show", "show who holds a lock and who waits for it", true, true)
}

// Holders is zlock holders.
func Holders() *call.Command {
	return queueCommand("holders", "show who holds a lock", true, false)
}

// Waiters is zlock waiters.
func Waiters() *call.Command {
	return queueCommand("waiters", "show who waits for a lock", false, true)
}

// queueCommand returns a command that shows the holders of a lock, its waiters, or both.
func queueCommand(name, does string, holders, waiters bool) *call.Command {
	return &call.Command{
		Name: name, Args: "PATH", Paths: true, Least: 1, Most: 1, Does: does, Prints: []any{shownEntry{}},
		Help: `Exit code: 0, or 1 if there is no holder or waiter.

With -o plain the columns are: position (* holds), mode, host, pid, since, node
waited for, reason, node, session, token, maker.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			format := call.AddFormat(fs)
			server := addServerFlags(fs)
			conn := connect.AddAskFlags(fs)
			return func(c *call.Call) error {
				return look(c, server, conn, func(ctx context.Context, r reader) error {
					q, err := r.Inspect(ctx, c.Args[0])
					if err != nil {
						return err
					}
					return showQueue(c, q, *format, holders, waiters)
				})
			}
		},
	}
}

// shownEntry is a contender in JSON.
type shownEntry struct {
	Path         string        `json:"path"`
	Layout       string        `json:"layout"`
	Holds        bool          `json:"holds"`
	Node         string        `json:"node"`
	Mode         recipe.Mode   `json:"mode"`
	Slot         int           `json:"slot,omitempty"` // the number of a permit
	Position     int           `json:"position"`
	Session      int64         `json:"session,string"`
	Token        int64         `json:"token,string"`
	Maker        recipe.Maker  `json:"maker"`
	Owner        *recipe.Owner `json:"owner,omitempty"`
	Raw          string        `json:"raw,omitempty"`
	WaitingSince time.Time     `json:"waitingSince"`
	HeldSince    time.Time     `json:"heldSince,omitzero"`
	BlockedBy    string        `json:"blockedBy,omitempty"` // of several such nodes, the last
}

func showQueue(c *call.Call, q *recipe.Queue, format string, holders, waiters bool) error {
	if (!holders || len(q.Holders) == 0) && (!waiters || len(q.Waiters) == 0) {
		if format == call.Table {
			fmt.Fprintln(c.Stdout, emptyText(q, holders, waiters))
		}
		return cli.Exit(call.ExitNo)
	}
	p := c.Printer(format, "POS", "MODE", "HOST", "PID", "SINCE", "WAITS-FOR", "REASON")
	if format == call.Table {
		fmt.Fprintf(c.Stdout, "PATH  %s  layout %s", call.Clean(q.Path), q.Layout())
		if q.Policy != "" {
			fmt.Fprintf(c.Stdout, "  policy %s", q.Policy)
		}
		if q.Limit > 0 {
			fmt.Fprintf(c.Stdout, "  limit %d", q.Limit)
		}
		fmt.Fprintf(c.Stdout, "  next seq %010d\n", q.Next)
		if q.Mixed {
			c.Say("contenders of programs that cannot see each other share this directory")
		}
	}
	hosts := map[string]string{}
	for _, list := range [][]recipe.Entry{q.Holders, q.Waiters} {
		for _, e := range list {
			hosts[e.Node] = call.HostOf(e)
		}
	}
	if holders {
		for _, e := range q.Holders {
			showEntry(p, q, e, true, hosts)
		}
	}
	if waiters {
		for _, e := range q.Waiters {
			showEntry(p, q, e, false, hosts)
		}
	}
	return p.Flush()
}

// emptyText returns the message if there is nothing to show.
func emptyText(q *recipe.Queue, holders, waiters bool) string {
	path := call.Clean(q.Path)
	if n := len(q.Participants); n > 0 && q.Kind == recipe.KindUnknown {
		return fmt.Sprintf("%d contenders at %s, but it is not known which of them hold it; zlock node ls "+
			"shows their nodes", n, path)
	}
	switch {
	case !waiters && len(q.Waiters) > 0:
		return fmt.Sprintf("no client holds %s; %d clients wait for it", path, len(q.Waiters))
	case !waiters:
		return "no client holds " + path
	case !holders:
		return "no client waits for " + path
	}
	return fmt.Sprintf("no client holds %s or waits for it", path)
}

func showEntry(p *call.Printer, q *recipe.Queue, e recipe.Entry, holds bool, hosts map[string]string) {
	obj := shownEntry{
		Path: q.Path, Layout: q.Layout(), Holds: holds, Node: e.Node, Mode: e.Mode, Slot: e.Slot,
		Position: e.Position,
		Session:  int64(e.Session),
		Token:    e.Token, Maker: e.Maker, Owner: e.Owner, Raw: e.Data, WaitingSince: time.UnixMilli(e.Since),
	}
	if e.HeldSince != 0 {
		obj.HeldSince = time.UnixMilli(e.HeldSince)
	}
	if n := len(e.BlockedBy); n > 0 {
		obj.BlockedBy = e.BlockedBy[n-1]
	}
	var pos, pid any = "*", ""
	since, mark, reason := obj.HeldSince, "", e.Data
	switch {
	case !holds:
		pos, since = e.Position, obj.WaitingSince
	case since.IsZero():
		since, mark = obj.WaitingSince, "≥" // not known: but it cannot have held before it came
	}
	if o := e.Owner; o != nil {
		pid, reason = o.PID, o.Reason
	}
	if r, ok := e.Asked(); ok {
		reason += " (asked back" + byText(r.By) + ")"
	}
	if p.Format == call.Plain {
		p.Row(obj, pos, modeLetter(e.Mode), call.HostOf(e), pid, since, obj.BlockedBy, reason,
			e.Node, e.Session, e.Token, e.Maker)
		return
	}
	letter := modeLetter(e.Mode)
	if e.Slot > 0 {
		letter += " " + strconv.Itoa(e.Slot)
	}
	p.Row(obj, pos, letter, call.HostOf(e), pid, mark+call.Clock(since), hosts[obj.BlockedBy], reason)
}

func byText(by string) string {
	if by == "" {
		return ""
	}
	return " by " + by
}

func modeLetter(m recipe.Mode) string {
	switch m {
	case recipe.Exclusive:
		return "W"
	case recipe.Shared:
		return "R"
	}
	return "P"
}
