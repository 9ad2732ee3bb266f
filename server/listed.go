package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/session"
)

// The functions below add lists to a status, as far as they fit. They read the state in parts, so that writes
// need not wait for a whole list.

// listConns lists the connections.
func (i *Instance) listConns(s *report.Status) {
	s.ConnList = i.Clients.Conns()
	slices.SortFunc(s.ConnList, func(a, b report.Conn) int {
		return cmp.Or(a.Established.Compare(b.Established), cmp.Compare(a.Addr, b.Addr))
	})
	for n := range s.ConnList {
		if !s.Fits("connections", len(s.ConnList), report.ListedConn) {
			s.ConnList = s.ConnList[:n]
			return
		}
	}
}

// listWatches adds the watches, by session.
func (i *Instance) listWatches(s *report.Status, need report.Need) {
	list := i.names(need)
	i.Clients.WatchScan(func(path string, session int64) bool {
		fits := s.Fits("watches", s.Watches, report.ListedPath(path))
		if fits {
			list.add(session, path)
		}
		return fits
	})
	s.WatchList = list.list()
}

// sorted() turns a map into a list, in the order of sessions. It sorts the paths of each session and drops
// duplicates.
func sorted(by map[int64][]string) []report.SessionPaths {
	list := make([]report.SessionPaths, 0, len(by))
	for id, paths := range by {
		slices.Sort(paths)
		list = append(list, report.SessionPaths{Session: id, Paths: slices.Compact(paths)})
	}
	slices.SortFunc(list, func(a, b report.SessionPaths) int { return cmp.Compare(a.Session, b.Session) })
	return list
}

// names collects paths by session. Of paths that the reader of the list may not see, it keeps only their
// number.
type names struct {
	by     map[int64][]string
	hidden map[int64]int
	shows  func(path string) bool
}

// keptNames bounds the bytes of directory names for which a list remembers whether the reader may see their
// children. For further directories it looks again each time.
const keptNames = 8 << 20

func (i *Instance) names(need report.Need) *names {
	l := &names{by: make(map[int64][]string), hidden: make(map[int64]int)}
	node := i.node.Load()
	if need&report.NeedHidden != 0 || i.o.SkipACL || node == nil {
		l.shows = func(string) bool { return true }
		return l
	}
	open := map[string]bool{}
	room := keptNames
	l.shows = func(path string) bool {
		dir := path[:max(strings.LastIndexByte(path, '/'), 0)]
		may, known := open[dir]
		if !known {
			node.View(func(st *state.State) { may = st.Tree().Shows(path) })
			if room -= len(dir) + 32; room > 0 {
				open[dir] = may
			}
		}
		return may
	}
	return l
}

func (l *names) add(session int64, path string) {
	if l.shows(path) {
		l.by[session] = append(l.by[session], path)
	} else {
		l.hidden[session]++
	}
}

// list returns the paths by session, sorted and without duplicates. In place of the paths that the reader may
// not see, it has one text with their number.
func (l *names) list() []report.SessionPaths {
	for id, n := range l.hidden {
		l.by[id] = append(l.by[id], fmt.Sprintf("(%d that world:anyone may not list)", n))
	}
	return sorted(l.by)
}

// listedAtOnce is how many sessions listSessions reads under one hold of the state lock.
const listedAtOnce = 256

// listSessions lists the sessions, in the order of ids.
func listSessions(s *report.Status, node *raftfsm.Node) {
	left := node.Deadlines()
	piece := make([]session.Session, 0, listedAtOnce)
	for after, more := int64(0), true; more; {
		piece = piece[:0]
		node.View(func(st *state.State) {
			st.Sessions().From(after, listedAtOnce, func(x session.Session) { piece = append(piece, x) })
		})
		more = len(piece) == listedAtOnce
		for _, x := range piece {
			if !s.Fits("sessions", s.Sessions, report.ListedSession) {
				return
			}
			after = x.ID
			e := report.Session{ID: x.ID, Timeout: time.Duration(x.Timeout) * time.Millisecond}
			if d, ok := left[x.ID]; ok {
				e.Expires = s.Now.Add(d)
			}
			s.SessionList = append(s.SessionList, e)
		}
	}
}

// listEphemerals adds the ephemeral nodes, by session. A node that is created or deleted while it runs may be
// in the list or not.
func (i *Instance) listEphemerals(s *report.Status, node *raftfsm.Node, need report.Need) {
	list := i.names(need)
	node.Ephemerals(func(session int64, path string) bool {
		fits := s.Fits("ephemeral nodes", s.EphemeralCount, report.ListedPath(path))
		if fits {
			list.add(session, path)
		}
		return fits
	})
	s.Ephemerals = list.list()
}
