package observe

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// EndedSession is a session that has ended.
type EndedSession struct {
	Session int64
	Zxid    int64 // zxid of its end
	// when it ended, by the leader's clock; this server may learn of the end late, from its log
	Time  time.Time
	Cause state.EndCause
	// Addr is the client's address, Server is the server that it was connected to last, and Timeout is the
	// negotiated timeout.
	Addr    string
	Server  uint32
	Timeout time.Duration
	// Silent is how long the client had been silent, if it was connected to this server; otherwise it is
	// zero.
	Silent time.Duration
	// Lost says why the session's last connection to this server ended before the session, and LostFor says
	// how long before it. Lost is empty if the connection lasted as long as the session, or if the reason is
	// not known.
	Lost    string
	LostFor time.Duration
	// Paths are some of the ephemeral nodes that were removed with the session. PathCount is the number of
	// all of them.
	Paths     []string
	PathCount int
	unlisted  uint8 // has a bit for each of Paths; 1: not every client could have listed that path
}

// Reason returns, in words, why the session ended.
func (e *EndedSession) Reason() string {
	silent := "its whole timeout"
	if e.Silent > 0 {
		silent = e.Silent.Round(time.Millisecond).String()
	}
	switch {
	case e.Cause == state.EndClosed:
		return "closed by its client"
	case e.Cause == state.EndOperator:
		return "ended by an operator"
	case e.Lost != "":
		return fmt.Sprintf("client silent for %s; its connection had ended %s before: %s", silent,
			e.LostFor.Round(time.Millisecond), e.Lost)
	}
	return "client silent for " + silent
}

// Listed returns those of Paths that every client could have listed.
func (e *EndedSession) Listed() (paths []string) {
	for i, p := range e.Paths {
		if e.unlisted&(1<<i) == 0 {
			paths = append(paths, p)
		}
	}
	return paths
}

// Bounds of the memory of ended sessions: together some 14 MiB.
const (
	endedKept = 10_000
	endedPath = 4   // how many paths of each session are kept
	endedName = 256 // how many bytes of a path are kept
)

// endedSessions holds the sessions that ended last.
type endedSessions struct {
	news chan struct{} // receives a value after a session was added

	mu   sync.Mutex
	list []EndedSession
	next int // index of the entry that is overwritten next, when the ring is full
}

// SessionEnded records the end of a session. heard is when the client was last heard from; it is negative if
// the client is not connected to this server.
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
			e.Paths = append(e.Paths, strings.Clone(path[:min(len(path), endedName)]))
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

// lostConns holds the sessions whose last connection to this server has ended. As far as this server knows,
// these sessions have neither connected again nor ended.
type lostConns struct {
	mu sync.Mutex
	by map[int64]lostConn
}

type lostConn struct {
	why       string
	at, heard time.Duration // times on the server's clock
}

// maxLost bounds the number of lost connections, because clients may move to other servers and never come
// back.
const maxLost = 20_000

// ConnLost remembers that a session's connection has ended, and when its client was last heard from.
func (c *Clients) ConnLost(session int64, why string, heard time.Duration) {
	l := &c.lost
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[int64]lostConn)
	}
	if len(l.by) >= maxLost {
		for id := range l.by { // forget any of them: the only effect is that operators see a less exact reason
			delete(l.by, id)
			break
		}
	}
	l.by[session] = lostConn{why, c.now(), heard}
}

// SessionCame notes that a session is connected again, and forgets the end of its older connection.
func (c *Clients) SessionCame(session int64) { c.lost.take(session) }

func (l *lostConns) take(session int64) (lostConn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.by[session]
	delete(l.by, session)
	return c, ok
}
