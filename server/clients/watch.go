package clients

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/tree"
)

// CountWatches implements budget.Holder.
func (c *conn) CountWatches() { c.srv.watches.Recount(&c.from.Address) }

// watchOp answers addWatch, removeWatches and checkWatches. It asks the table before it locks the outbox,
// because the locks have this order.
func (c *conn) watchOp(st *state.State, xid int32, op jute.OpCode, body []byte) (open bool) {
	w, which, code := request.WatchOp(op, body)
	c.reads.cost += int64(tree.WatchSteps(w.Path))
	var record []byte
	open = true
	switch {
	case code != jute.OK:
	case w.Set:
		open = c.srv.watches.Add(&c.watcher, w.Path, w.Kind)
		record = []byte{0, 0, 0, 0}
	case !c.srv.watches.Find(&c.watcher, op, w.Path, which):
		code = jute.NoWatcher
	}
	return open && c.reply(xid, op, st.Zxid(), code, record)
}

// watching returns the connection that watches.
func watching(w *watchers.Watcher) *conn { return w.Out.Owner().(*conn) }

// Watching reports whether a session watches exactly this path; known is false if the session is not
// connected to this server.
func (s *Server) Watching(session int64, path string) (watching, known bool) {
	c := s.connOf(session)
	return c != nil && s.watches.Has(&c.watcher, path), c != nil
}

// Watchers returns up to most of the sessions connected here that watch exactly
// this path.
func (s *Server) Watchers(path string, most int) (sessions []int64) {
	s.watches.At(path, most, func(w *watchers.Watcher) { sessions = append(sessions, watching(w).session) })
	return sessions
}

// WatchCount returns how many watches a session has at this server.
func (s *Server) WatchCount(session int64) int {
	c := s.connOf(session)
	if c == nil {
		return 0
	}
	return s.watches.Of(&c.watcher)
}
