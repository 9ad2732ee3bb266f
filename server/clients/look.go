package clients

import "github.com/zlockd/zlockd/tree"

// Watching tells whether a session watches exactly this path, if it is
// connected to this server.
func (s *Server) Watching(session int64, path string) (watching, known bool) {
	c := s.connOf(session)
	if c == nil {
		return false, false
	}
	t := &s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table.Has(c, path, tree.WatcherAny), true
}

// Watchers returns up to most of the sessions connected here that watch exactly
// this path.
func (s *Server) Watchers(path string, most int) (sessions []int64) {
	t := &s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.WatchersAt(path, most, func(c *conn) { sessions = append(sessions, c.session) })
	return sessions
}

// WatchCount tells how many watches a session has here.
func (s *Server) WatchCount(session int64) int {
	c := s.connOf(session)
	if c == nil {
		return 0
	}
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	count, _ := s.watches.table.Of(c)
	return count
}
