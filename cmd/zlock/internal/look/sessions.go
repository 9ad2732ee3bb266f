package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/server/view/answer"
)

// Sessions is zlock sessions.
func Sessions() *call.Command {
	return &call.Command{
		Name: "sessions", Args: "[ID]", Most: 1,
		Does: "show the sessions of a zlockd, or one of them",
		Help: `Asks the admin listener of a server. With ID: the locks that one session holds and
waits for; exit code 1 if there is no such session. With --ended: the
sessions that ended while the server ran, why, and which locks moved. With -o plain the
columns are: session, address, server, timeout in ms, since, ephemeral nodes,
requests; with --ended: session, time, cause, address, ephemeral nodes, reason,
locks.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			ended := fs.Bool("ended", false, "show sessions that have ended, the newest first")
			limit := fs.Int("limit", 100, "show at most `N`")
			f := connect.AddAdminFlags(fs, false)
			format := call.AddFormat(fs)
			return func(c *call.Call) error {
				if *limit < 1 {
					return cli.Usagef("--limit must be positive")
				}
				if *ended && len(c.Args) > 0 {
					return cli.Usagef("--ended lists all ended sessions; leave out the ID")
				}
				return connect.WithAdmin(c, f, func(ctx context.Context, a connect.Admin) error {
					switch {
					case *ended:
						return endedSessions(ctx, c, a, *limit, *format)
					case len(c.Args) == 1:
						return oneSession(ctx, c, a, c.Args[0], *format)
					}
					return allSessions(ctx, c, a, *limit, *format)
				})
			}
		},
	}
}

func allSessions(ctx context.Context, c *call.Call, a connect.Admin, limit int, format string) error {
	p := c.Printer(format, "SESSION", "ADDRESS", "SERVER", "TIMEOUT", "SINCE", "NODES", "REQUESTS")
	row := func(raw json.RawMessage, s *answer.Session) {
		var requests, timeout any = "", time.Duration(s.TimeoutMS) * time.Millisecond
		if s.Conn != nil {
			requests = s.Conn.Received
		}
		if format == call.Plain {
			timeout = s.TimeoutMS
		}
		p.Row(raw, s.ID, s.Addr, s.Server, timeout, time.UnixMilli(s.Created), s.Nodes, requests)
	}
	total, err := rows(ctx, a, "/sessions", url.Values{}, limit, row)
	if err == nil && total > limit && format == call.Table {
		defer c.Say("%d of %d sessions are shown; see --limit", limit, total)
	}
	return errors.Join(err, p.Flush())
}

func oneSession(ctx context.Context, c *call.Call, a connect.Admin, id, format string) error {
	var raw json.RawMessage
	if err := a.Ask(ctx, "/sessions/"+url.PathEscape(id), nil, &raw); err != nil {
		return err
	}
	var s answer.OneSession
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	switch format {
	case call.JSON:
		return cli.WriteJSON(c.Stdout, raw)
	case call.Table:
		fmt.Fprintf(c.Stdout, "SESSION  %s  client %s  server %d  timeout %v  since %s  nodes %d\n",
			call.Clean(s.ID), call.Clean(s.Addr), s.Server,
			time.Duration(s.TimeoutMS)*time.Millisecond, call.Clock(time.UnixMilli(s.Created)), s.Nodes)
	}
	p := c.Printer(format, "STATE", "LOCK", "MODE", "SINCE", "TOKEN", "NODE")
	for _, l := range []struct {
		state string
		roles []answer.Role
	}{{"holds", s.Holds}, {"waits", s.WaitsFor}} {
		for _, r := range l.roles {
			p.Row(r, l.state, r.Path, r.Mode, time.UnixMilli(r.Since), r.Token, r.Node)
		}
	}
	return p.Flush()
}

func endedSessions(ctx context.Context, c *call.Call, a connect.Admin, limit int, format string) error {
	p := c.Printer(format, "SESSION", "ENDED", "CAUSE", "ADDRESS", "NODES", "REASON", "PATHS")
	row := func(raw json.RawMessage, s *answer.Ended) {
		p.Row(raw, s.ID, time.UnixMilli(s.Time), s.Cause, s.Addr, s.Nodes, s.Reason,
			strings.Join(s.Paths, ", "))
	}
	_, err := rows(ctx, a, "/sessions/ended", url.Values{}, limit, row)
	return errors.Join(err, p.Flush())
}

// Top is zlock top.
func Top() *call.Command {
	return &call.Command{
		Name:   "top",
		Does:   "show the busiest clients and most watched paths of a zlockd",
		Prints: []any{topRow{}},
		Help: `Asks the admin listener of a server for its last minute, by the counters of its
connections. With -o plain the columns are: what (client or watched), name, requests,
bytes, watches.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			by := "requests"
			fs.Var(cli.NewChoice(&by, "requests", "bytes", "watches"), "by",
				"sort by requests, bytes or watches")
			limit := fs.Int("limit", 10, "show at most `N` of each, up to 200")
			f := connect.AddAdminFlags(fs, false)
			format := call.AddFormat(fs)
			return func(c *call.Call) error {
				return connect.WithAdmin(c, f, func(ctx context.Context, a connect.Admin) error {
					return top(ctx, c, a, by, *limit, *format)
				})
			}
		},
	}
}

// topRow is a line of top.
type topRow struct {
	What string `json:"what"`
	answer.Busy
}

func top(ctx context.Context, c *call.Call, a connect.Admin, by string, limit int, format string) error {
	var t answer.Top
	if err := a.Ask(ctx, "/top", url.Values{"by": {by}, "limit": {strconv.Itoa(limit)}}, &t); err != nil {
		return err
	}
	p := c.Printer(format, "WHAT", "NAME", "REQUESTS", "BYTES", "WATCHES")
	for _, l := range []struct {
		what string
		rows []answer.Busy
	}{{"client", t.Clients}, {"watched", t.Watched}} {
		for _, r := range l.rows {
			p.Row(topRow{l.what, r}, l.what, r.Name, r.Requests, r.Bytes, r.Watches)
		}
	}
	if format == call.Table {
		fmt.Fprintf(c.Stdout, "LAST  %.0f s\n", t.Seconds)
	}
	return p.Flush()
}
