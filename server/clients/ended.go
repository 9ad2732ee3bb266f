package clients

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
	Zxid    int64     // of its end
	Time    time.Time // of its end, by the leader's clock: this server may learn of it late, from its log
	Cause   state.EndCause
	// Addr is its client's address, Server the one it was connected to last,
	// and Timeout what was negotiated.
	Addr    string
	Server  uint32
	Timeout time.Duration
	// Silent is how long the client had been silent, if it was connected to this server; otherwise
	// zero.
	Silent time.Duration
	// Lost says why its last connection here ended before the session did, and LostFor how long
	// before; "" if it did not, or is not known.
	Lost    string
	LostFor time.Duration
	// Paths are some of its ephemeral nodes, which went with it, and PathCount
	// is how many there were.
	Paths     []string
	PathCount int
}

// Reason says in words why the session ended.
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

// Bounds of the memory of ended sessions.
const (
	endedKept = 10_000
	endedPath = 8   // paths of each
	endedName = 256 // bytes of a path
)

// endedRing holds the sessions that ended last.
type endedRing struct {
	news chan struct{} // has one entry after something was added

	mu   sync.Mutex
	list []EndedSession
	next int // overwritten next, once the ring is full
}

func (r *endedRing) add(e EndedSession) {
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

// Ended returns the sessions that ended last, the newest first.
func (s *Server) Ended() []EndedSession { return s.EndedSince(-1) }

// EndedSince returns the sessions that ended after a zxid, the newest first.
func (s *Server) EndedSince(zxid int64) (list []EndedSession) {
	r := &s.ended
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
func (s *Server) EndedNews() <-chan struct{} { return s.ended.news }

// noteEnd remembers a session's end. It runs while the end is applied.
func (s *Server) noteEnd(c *conn, end *state.Ending) {
	of, zxid := &end.Session, end.Zxid
	e := EndedSession{
		Session: of.ID, Zxid: zxid, Time: time.UnixMilli(end.Time), Cause: end.Cause,
		Addr: of.Addr, Server: of.Owner, Timeout: time.Duration(of.Timeout) * time.Millisecond,
	}
	if lost, ok := s.lost.take(of.ID); ok {
		e.Silent, e.LostFor, e.Lost = s.now()-lost.heard, s.now()-lost.at, lost.why.String()
	}
	if c != nil {
		e.Silent = s.now() - time.Duration(c.lastHeard.Load())
		e.Lost, e.LostFor = "", 0
	}
	if s.eventsZxid == zxid {
		for i := range s.events {
			if s.events[i].Type != jute.EventDeleted {
				continue
			}
			if e.PathCount++; e.PathCount <= endedPath {
				path := s.events[i].Path
				e.Paths = append(e.Paths, strings.Clone(path[:min(len(path), endedName)]))
			}
		}
	}
	if end.Cause == state.EndExpired {
		s.metrics.SessionsExpired.Add(1)
	}
	s.ended.add(e)
}

// lostConns holds the sessions whose last connection here has ended. As far as this server knows,
// they have neither come back nor ended.
type lostConns struct {
	mu sync.Mutex
	by map[int64]lostConn
}

type lostConn struct {
	why       endReason
	at, heard time.Duration // on the server's clock
}

// maxLost bounds them: clients may go to other servers and never come back.
const maxLost = 20_000

// note remembers that a connection has ended.
func (l *lostConns) note(c *conn, why endReason, now time.Duration) {
	if phase(c.phase.Load()) != phaseOpen || c.retired.Load() || why == endSession || why == endGone ||
		why == endMoved {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[int64]lostConn)
	}
	if len(l.by) >= maxLost {
		for id := range l.by { // any: it only makes a reason for operators less exact
			delete(l.by, id)
			break
		}
	}
	l.by[c.session] = lostConn{why, now, time.Duration(c.lastHeard.Load())}
}

func (l *lostConns) forget(session int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, session)
}

func (l *lostConns) take(session int64) (lostConn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.by[session]
	delete(l.by, session)
	return c, ok
}

// Down is a time during which clients were not served here: an election, a
// stall, a cut network.
type Down struct{ Since, Until time.Time }

// troubles records other events that may have ended sessions.
type troubles struct {
	mu      sync.Mutex
	down    time.Time // not served since; zero: served
	downs   []Down
	refused map[string]Refusal // by address
}

// Refusal is the newest connection from an address that a limit refused.
type Refusal struct {
	Time time.Time
	Why  string
}

const (
	keptDowns    = 32
	keptRefusals = 1000
)

// serving notes whether this server serves clients from now on.
func (t *troubles) serving(serve bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !serve && t.down.IsZero():
		t.down = now
	case serve && !t.down.IsZero():
		if len(t.downs) == keptDowns {
			t.downs = append(t.downs[:0], t.downs[1:]...)
		}
		t.downs = append(t.downs, Down{t.down, now})
		t.down = time.Time{}
	}
}

func (t *troubles) refuse(addr, why string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil || len(t.refused) >= keptRefusals {
		t.refused = map[string]Refusal{}
	}
	t.refused[addr] = Refusal{now, why}
}

// Downs returns when clients were not served here, the oldest first.
func (s *Server) Downs() []Down {
	s.troubles.mu.Lock()
	defer s.troubles.mu.Unlock()
	return append([]Down(nil), s.troubles.downs...)
}

// Refused returns the newest refusal of a connection from an address.
func (s *Server) Refused(addr string) (Refusal, bool) {
	s.troubles.mu.Lock()
	defer s.troubles.mu.Unlock()
	r, ok := s.troubles.refused[addr]
	return r, ok
}
