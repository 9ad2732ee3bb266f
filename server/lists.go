package server

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
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
func (i *Instance) listWatches(s *admin.Status, need admin.Need) {
	by := make(map[int64][]string)
	name := i.namer(need)
	i.Clients.WatchScan(func(path string, session int64) {
		if s.Fits("watches", s.Watches, admin.ListedPath(path)) {
			by[session] = append(by[session], name(path))
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

// hiddenName stands for the nodes of a list that the reader may not know.
const hiddenName = "(nodes that world:anyone may not list)"

// namer returns what a list calls a path: the path itself if every client may list it, that is, if
// world:anyone may read the node above it.
func (i *Instance) namer(need admin.Need) func(path string) string {
	node := i.node.Load()
	if need&admin.NeedHidden != 0 || i.o.SkipACL || node == nil {
		return func(name string) string { return name }
	}
	open := map[string]bool{}
	return func(name string) string {
		dir := path.Dir(name)
		may, known := open[dir]
		if !known && len(open) < 100_000 {
			node.View(func(st *state.State) {
				n, ok := st.Tree().Find(dir)
				for above := dir; !ok; n, ok = st.Tree().Find(above) { // only a watch is there
					above = path.Dir(above)
				}
				_, may = n.Data([]jute.ID{jute.WorldAnyone[0].ID})
			})
			open[dir] = may
		}
		if !may {
			return hiddenName
		}
		return name
	}
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
func (i *Instance) listEphemerals(s *admin.Status, node *raftfsm.Node, need admin.Need) {
	by, name := make(map[int64][]string), i.namer(need)
	node.Ephemerals(func(session int64, path string) bool {
		fits := s.Fits("ephemeral nodes", s.EphemeralCount, admin.ListedPath(path))
		if fits {
			by[session] = append(by[session], name(path))
		}
		return fits
	})
	s.Ephemerals = sorted(by)
}
