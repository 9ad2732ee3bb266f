package view

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

type sessionList struct {
	V int `json:"v"`
	ask.Page
	Sessions []answer.Session `json:"sessions"`
}

// conns() returns this server's connections by session.
func (v *View) conns() map[int64]*report.Conn {
	list := v.source.Conns()
	by := make(map[int64]*report.Conn, len(list))
	for i := range list {
		if c := &list[i]; c.Session != 0 {
			if old := by[c.Session]; old == nil || c.Established.After(old.Established) {
				by[c.Session] = c
			}
		}
	}
	return by
}

func (v *View) sessionRow(s *session.Session, nodes int, c *report.Conn) answer.Session {
	r := answer.Session{ID: report.Hex(s.ID), Addr: s.Addr, Server: s.Owner, TimeoutMS: s.Timeout,
		Created: s.Created, Nodes: nodes}
	if c == nil {
		return r
	}
	r.Connected = true
	r.Conn = &answer.Conn{
		Addr: c.Addr, Secure: c.Secure, Since: c.Established.UnixMilli(), Queued: c.Queued, Received: c.Received,
		Sent:    c.Sent,
		BytesIn: c.BytesIn, BytesOut: c.BytesOut, LastOp: c.LastOp, AvgMS: c.Latency.Avg, MaxMS: c.Latency.Max,
		ExpiresInMS: c.Expires.Sub(v.o.Now()).Milliseconds(),
	}
	return r
}

// allSessions returns the ids of all sessions. It reads them in pieces.
func (v *View) allSessions() ([]int64, error) {
	var ids []int64
	for after, more := int64(0), true; more; {
		ids = slices.Grow(ids, look.SessionsAtOnce) // before View, which holds the state lock
		ok := v.source.View(func(st *state.State) {
			before := len(ids)
			st.Sessions().From(after, look.SessionsAtOnce, func(s session.Session) { ids = append(ids, s.ID) })
			if more = len(ids) > before; more {
				after = ids[len(ids)-1]
			}
		})
		if !ok {
			return nil, ask.ErrNotServing
		}
	}
	return ids, nil
}

// listSessions answers /sessions.
func (v *View) listSessions(ctx context.Context, q *ask.Query) (any, error) {
	addr, server, here := q.Text("addr"), q.Number("server", 0, 1, 254), q.Flag("here")
	offset, limit := q.Part()
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	ids, err := v.allSessions()
	if err != nil {
		return nil, err
	}
	conns := v.conns()
	if addr != "" || server != 0 || here {
		all := ids
		ids = nil
		err = v.look.Each(ctx, all, func(s session.Session, _ *tree.Tree) {
			if strings.HasPrefix(s.Addr, addr) && (server == 0 || s.Owner == uint32(server)) &&
				(!here || conns[s.ID] != nil) {
				ids = append(ids, s.ID)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	list := sessionList{V: ask.Version, Sessions: []answer.Session{}}
	list.Page, ids = ask.Cut(ids, offset, limit)
	type seen struct {
		s     session.Session
		nodes int
	}
	shown := make([]seen, 0, len(ids)) // copies: the answer's rows are built from them without the state lock
	err = v.look.Each(ctx, ids, func(s session.Session, t *tree.Tree) {
		shown = append(shown, seen{s, t.EphemeralsIn(s.ID)})
	})
	for i := range shown {
		s := &shown[i]
		list.Sessions = append(list.Sessions, v.sessionRow(&s.s, s.nodes, conns[s.s.ID]))
	}
	return list, err
}

// somePaths is how many ephemeral nodes of a session are listed.
const somePaths = 200

// oneSession answers /sessions/ID.
func (v *View) oneSession(ctx context.Context, q *ask.Query) (any, error) {
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	id, ok := ask.ParseSession(q.Name)
	if !ok {
		return nil, ask.NotFound("there is no session %q; ids are like 0x100000ae0210023", ask.Clip(q.Name))
	}
	a := answer.OneSession{V: ask.Version, Holds: []answer.Role{}, WaitsFor: []answer.Role{}, Paths: []string{}}
	var s session.Session
	nodes := 0
	var paths []string
	if !v.source.View(func(st *state.State) {
		if s, ok = st.Sessions().Get(id); ok {
			nodes = st.Tree().EphemeralsIn(id)
			paths = st.Tree().SomeEphemeralsOf(id, somePaths)
		}
	}) {
		return nil, ask.ErrNotServing
	}
	if !ok {
		if e := v.endedOf(id); e != nil {
			return nil, ask.NotFound("session %s ended %s ago: %s", report.Hex(id),
				v.o.Now().Sub(e.Time).Round(time.Second), e.Reason())
		}
		return nil, ask.NotFound("there is no session %s", report.Hex(id))
	}
	for _, p := range paths {
		if v.shows(q, p) {
			a.Paths = append(a.Paths, ask.Clip(p))
		} else {
			a.Hidden++
		}
	}
	a.Session = v.sessionRow(&s, nodes, v.conns()[id])
	a.Watches = v.source.WatchCount(id)
	scan, err := v.look.Locks(ctx)
	if err != nil {
		return nil, err
	}
	list, _, _ := scan.Seen(q.All)
	for i := range list {
		l := &list[i]
		a.Holds = appendRoles(a.Holds, l, l.Holders, id)
		a.WaitsFor = appendRoles(a.WaitsFor, l, l.Waiters, id)
	}
	switch {
	case nodes > len(paths):
		a.Truncated = "too many: " + ask.Thousands(nodes) + " ephemeral nodes, " +
			ask.Thousands(len(a.Paths)) + " shown"
	case a.Hidden > 0:
		a.Truncated = port.NoNames(a.Hidden, "of its nodes are")
	case scan.Truncated:
		a.Truncated = "too many: " + ask.Thousands(scan.Total) +
			" ephemeral nodes of all sessions; some locks are not shown"
	}
	return a, nil
}

// shows() reports whether a query may see a path.
func (v *View) shows(q *ask.Query, path string) (shown bool) {
	return q.All || v.source.View(func(st *state.State) { shown = st.Tree().Shows(path) }) && shown
}

// maxRoles is how many locks of a session are listed.
const maxRoles = 1000

func appendRoles(list []answer.Role, q *recipe.Queue, from []recipe.Entry, session int64) []answer.Role {
	for i := range from {
		if c := &from[i]; int64(c.Session) == session && len(list) < maxRoles {
			list = append(list, answer.Role{
				Path: ask.Clip(q.Path), Href: ask.Href("/locks", q.Path), Kind: q.Kind, Node: ask.Clip(c.Node),
				Mode: c.Mode, Token: strconv.FormatInt(c.Token, 10), Since: c.Since,
			})
		}
	}
	return list
}
