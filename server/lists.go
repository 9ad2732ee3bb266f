package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/session"
)

// The lists of a status. A list ends where the status has no room for more. The server reads
// lists in pieces, so that a status does not slow down writes.

// listConns lists the connections.
func (i *Instance) listConns(s *admin.Status) {
	s.ConnList = i.Clients.Conns()
	slices.SortFunc(s.ConnList, func(a, b admin.Conn) int {
		return cmp.Or(a.Established.Compare(b.Established), cmp.Compare(a.Addr, b.Addr))
	})
	for n := range s.ConnList {
		if !s.Fits("connections", len(s.ConnList), admin.ListedConn) {
			s.ConnList = s.ConnList[:n]
			return
		}
	}
}

// listWatches groups the watches by session.
func (i *Instance) listWatches(s *admin.Status) {
	by := make(map[int64][]string)
	i.Clients.WatchScan(func(path string, session int64) {
		if s.Fits("watches", s.Watches, admin.ListedPath(path)) {
			by[session] = append(by[session], path)
		}
	})
	s.WatchList = sorted(by)
}

// sorted makes a list of paths by session, both in order and each once.
func sorted(by map[int64][]string) []admin.SessionPaths {
	list := make([]admin.SessionPaths, 0, len(by))
	for id, paths := range by {
		slices.Sort(paths)
		list = append(list, admin.SessionPaths{Session: id, Paths: slices.Compact(paths)})
	}
	slices.SortFunc(list, func(a, b admin.SessionPaths) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

// listedAtOnce is how many sessions listSessions reads under one hold of the state lock.
const listedAtOnce = 256

// listSessions lists the sessions, in the order of ids.
func listSessions(s *admin.Status, node *raftfsm.Node) {
	left := node.Deadlines()
	piece := make([]session.Session, 0, listedAtOnce)
	for after, more := int64(-1), true; more; {
		piece = piece[:0]
		node.View(func(st *state.State) {
			st.Sessions().From(after, listedAtOnce, func(id int64) {
				if x, ok := st.Sessions().Get(id); ok {
					piece = append(piece, x)
				}
			})
		})
		more = len(piece) == listedAtOnce
		for _, x := range piece {
			if !s.Fits("sessions", s.Sessions, admin.ListedSession) {
				return
			}
			after = x.ID
			e := admin.Session{ID: x.ID, Timeout: time.Duration(x.Timeout) * time.Millisecond}
			if d, ok := left[x.ID]; ok {
				e.Expires = s.Now.Add(d)
			}
			s.SessionList = append(s.SessionList, e)
		}
	}
}

// listEphemerals lists the ephemeral nodes by session. Nodes that are created or deleted at that
// moment may be missing or not.
func listEphemerals(s *admin.Status, node *raftfsm.Node) {
	by := make(map[int64][]string)
	node.Ephemerals(func(session int64, path string) bool {
		fits := s.Fits("ephemeral nodes", s.EphemeralCount, admin.ListedPath(path))
		if fits {
			by[session] = append(by[session], path)
		}
		return fits
	})
	s.Ephemerals = sorted(by)
}
