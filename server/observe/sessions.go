package observe

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// SessionEnded records a session that has ended. `heard` is when its client was last heard from, or negative
// if the client was not connected to this server.
func (c *Clients) SessionEnded(end *state.Ending, heard time.Duration) {
	of := &end.Session
	e := EndedSession{
		Session: of.ID, Zxid: end.Zxid, Time: time.UnixMilli(end.Time), Cause: end.Cause,
		Addr: of.Addr, Server: of.Owner, Timeout: time.Duration(of.Timeout) * time.Millisecond,
	}
	if lost, ok := c.lost.take(of.ID); heard >= 0 {
		e.Silent = c.now() - heard
	} else if ok {
		e.Silent, e.LostFor, e.Lost = c.now()-lost.heard, c.now()-lost.at, lost.why
	}
	for i := range end.Events {
		if end.Events[i].Type != jute.EventDeleted {
			continue
		}
		if e.PathCount++; e.PathCount <= endedPath {
			path := end.Events[i].Path
			if end.Tree != nil && !end.Tree.Shows(path) {
				e.unlisted |= 1 << len(e.Paths)
			}
			e.Paths = append(e.Paths, shortened(path))
		}
	}
	if end.Cause == state.EndExpired {
		c.metrics.SessionsExpired.Add(1)
	}
	r := &c.ended
	r.mu.Lock()
	if len(r.list) < endedKept {
		r.list = append(r.list, e)
	} else {
		r.list[r.next] = e
		r.next = (r.next + 1) % endedKept
	}
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// shortened returns a copy of a path. It cuts a long path between two characters, and marks the cut.
func shortened(path string) string {
	if len(path) <= endedName {
		return strings.Clone(path)
	}
	end := endedName
	for end > endedName-utf8.UTFMax && !utf8.RuneStart(path[end]) {
		end--
	}
	return path[:end] + "…"
}

// EndedSince returns the sessions that ended after a zxid, the newest first.
func (c *Clients) EndedSince(zxid int64) (list []EndedSession) {
	r := &c.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.list)
	for i := range n {
		e := r.list[(r.next+n-1-i)%n]
		if e.Zxid <= zxid {
			break
		}
		list = append(list, e)
	}
	return list
}

// EndedNews returns a channel that receives a value when sessions have ended.
func (c *Clients) EndedNews() <-chan struct{} { return c.ended.news }

// ConnLost records that the connection of a session has ended, why, and when its client was last heard from.
func (c *Clients) ConnLost(session int64, why string, heard time.Duration) {
	l := &c.lost
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[int64]lostConn)
	}
	if len(l.by) >= maxLost {
		for id := range l.by { // forget any one: operators will see less of why that session ended
			delete(l.by, id)
			break
		}
	}
	l.by[session] = lostConn{why, c.now(), heard}
}

// SessionCame notes that a session is connected again, and forgets the end of its older connection.
func (c *Clients) SessionCame(session int64) { c.lost.take(session) }
