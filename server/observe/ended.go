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
	// when it ended, by the leader's clock; a server that replays its log learns of the end much later
	Time  time.Time
	Cause state.EndCause
	// Addr is the address of the client, Server is where it was last connected, and Timeout is the session's.
	Addr    string
	Server  uint32
	Timeout time.Duration
	// Silent is how long the server had heard nothing from the client. It is zero if the client was not
	// connected to this server.
	Silent time.Duration
	// Lost says why the last connection to this server ended, and LostFor how long before the session that was.
	// Lost is empty if the connection did not end before the session, or if the reason is not known.
	Lost    string
	LostFor time.Duration
	// Paths are some of the ephemeral nodes that were removed with the session. PathCount is the number of
	// all of them.
	Paths     []string
	PathCount int
	unlisted  uint8 // one bit for each of Paths: 1 if it was not a path that every client could list
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

// Bounds on the sessions that are remembered after their end. All of them take some 14 MiB.
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
	next int // when the list is full: the entry that the next session replaces
}

// lostConns remembers sessions whose connection to this server has ended. It forgets a session that has ended
// or, as far as this server learns of it, is connected again.
type lostConns struct {
	mu sync.Mutex
	by map[int64]lostConn
}

type lostConn struct {
	why       string
	at, heard time.Duration // when the connection ended, and when its client was last heard from
}

// maxLost bounds the sessions in lostConns: many move to other servers, and this server never hears of them
// again.
const maxLost = 20_000

func (l *lostConns) take(session int64) (lostConn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.by[session]
	delete(l.by, session)
	return c, ok
}
