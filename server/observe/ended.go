package observe

import (
	"fmt"
	"sync"
	"time"

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
	// Lost says why the session's last connection to this server ended before the session, and LostFor says how
	// long before the session it ended. Lost is empty if the connection lasted as long as the session, or if
	// the reason is not known.
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

func (l *lostConns) take(session int64) (lostConn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.by[session]
	delete(l.by, session)
	return c, ok
}
