package clients

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// memory is what connections hold beyond a little each: frames that they receive, and bytes that
// wait to be written. All of it together has a bound. A connection that needs more waits in line
// until others have given something back. While it waits, the server closes the connection with
// the least progress: bytes that one client does not send, or does not take, must not stop
// others. A connection asks for a frame's memory as a whole, so that it can always finish once it
// has some.
type memory struct {
	srv   *Server
	limit int

	mu   sync.Mutex
	used int
	held map[*conn]*holding
	line []*memoryWait
}

// holding is what one connection has.
type holding struct {
	part    [2]int        // input and output
	since   time.Duration // when it last made progress
	moved   int           // bytes since then
	partial bool          // the frame in input is not complete
}

const (
	inputPart = iota
	outputPart
)

// memoryWait is a connection that waits for a part to become n bytes.
type memoryWait struct {
	c       *conn
	part, n int
	own     bool          // it waits for connections from its own address
	granted chan struct{} // closed once it has them
}

// Times of waiting for memory.
const (
	memoryPoll  = 50 * time.Millisecond  // between two checks for progress
	memoryGrace = 500 * time.Millisecond // in which a client may let others wait
)

// memoryPace is how many bytes, received or taken, are progress: a frame of many megabytes takes its time on
// a busy machine.
const memoryPace = 64 << 10

func (m *memory) init(s *Server) {
	m.srv, m.limit, m.held = s, s.o.MaxBuffers, make(map[*conn]*holding)
}

// wait makes a part of what c holds n bytes, as soon as there is room. It
// reports false when the connection has ended.
func (m *memory) wait(c *conn, part, n int) bool {
	m.mu.Lock()
	if len(m.line) == 0 && m.set(c, part, n, false) || n <= m.partOf(c, part) && m.set(c, part, n, true) {
		m.mu.Unlock()
		return true
	}
	w := &memoryWait{c: c, part: part, n: n, granted: make(chan struct{})}
	m.line = append(m.line, w)
	m.advance() // those before it may wait for their own addresses
	m.mu.Unlock()
	m.srv.metrics.Throttled.Add(1)
	poll := time.NewTicker(memoryPoll)
	defer poll.Stop()
	for {
		m.recount(w)
		if slow, why := m.slowest(w); slow != nil {
			slow.close(why)
		}
		select {
		case <-w.granted:
			return true
		case <-poll.C:
		case <-m.srv.ctx.Done():
		}
		c.alive(m.srv.now()) // its next bytes wait, too
		if !c.isOpen() || m.srv.ctx.Err() != nil {
			m.leave(w)
			return false
		}
	}
}

// recount adds up the memory of w's address again if w waits for it: watches that fired may have freed
// some.
func (m *memory) recount(w *memoryWait) {
	m.mu.Lock()
	own := w.own
	m.mu.Unlock()
	if own {
		m.srv.watches.recount(w.c.from)
		m.mu.Lock()
		m.advance()
		m.mu.Unlock()
	}
}

// leave takes w out of the line, if it is still there. Memory that w was granted goes with its
// connection.
func (m *memory) leave(w *memoryWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.line, w); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.advance() // it may have been in the way
	}
}

// try is wait for callers that must not block. It reports false when there is no room; with force
// it takes the memory all the same.
func (m *memory) try(c *conn, part, n int, force bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(c, part, n, force)
}

func (m *memory) partOf(c *conn, part int) int {
	if h := m.held[c]; h != nil {
		return h.part[part]
	}
	return 0
}

// set makes a part of what c holds n bytes, if there is room. There always is for less than
// before, and for a connection that is alone. m is locked.
func (m *memory) set(c *conn, part, n int, force bool) bool {
	h := m.held[c]
	if h == nil {
		h = &holding{since: m.srv.now()}
	}
	more, mine := n-h.part[part], h.part[inputPart]+h.part[outputPart]
	if more > 0 && !force {
		a := &c.from.account
		if m.used+more > m.limit && m.used > mine || !a.roomFor(m.srv, more) && a.buffers.Load() > int64(mine) {
			return false
		}
	}
	c.from.buffers.Add(int64(more))
	h.part[part] = n
	m.used += more
	if h.part == [2]int{} {
		delete(m.held, c)
	} else {
		m.held[c] = h
	}
	if more < 0 {
		m.advance()
	}
	return true
}

// advance gives the first in line what they wait for, and passes over connections whose own
// address has too much. m is locked.
func (m *memory) advance() {
	left, full := m.line[:0], false
	for _, w := range m.line {
		has := m.partOf(w.c, w.part)
		w.own = !w.c.from.roomFor(m.srv, w.n-has)
		if !full && (w.n <= has || m.set(w.c, w.part, w.n, false)) {
			close(w.granted)
			continue
		}
		left = append(left, w)
		full = full || !w.own
	}
	clear(m.line[len(left):])
	m.line = left
}

// slowest returns the connection with the least progress that could make some, if that was longer
// than memoryGrace ago; nil if it is w's own connection, which others will close. If w waits for
// its own address, slowest looks at connections from there alone.
func (m *memory) slowest(w *memoryWait) (slow *conn, why ends.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := m.srv.now() - memoryGrace
	for other, h := range m.held {
		if w.own && other.from != w.c.from {
			continue
		}
		older := h.since < longest || h.since == longest && (slow == nil || other.number < slow.number)
		if older && (h.partial || h.part[outputPart] > 0) {
			slow, longest, why = other, h.since, ends.Slow
			if h.partial {
				why = ends.Stalled
			}
		}
	}
	if slow == w.c {
		return nil, ends.None
	}
	return slow, why
}

// partial notes whether the frame that c is receiving is complete.
func (m *memory) partial(c *conn, partial bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[c]; h != nil && h.partial != partial {
		h.since, h.moved, h.partial = m.srv.now(), 0, partial
	}
}

// moved notes that c's client has sent or taken n bytes of a large frame.
func (m *memory) moved(c *conn, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[c]
	if h == nil {
		return
	}
	if h.moved += n; h.moved >= memoryPace {
		h.since, h.moved = m.srv.now(), 0
	}
}

// drop gives back everything that c held.
func (m *memory) drop(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[c]; h != nil {
		m.used -= h.part[inputPart] + h.part[outputPart]
		c.from.buffers.Add(-int64(h.part[inputPart] + h.part[outputPart]))
		delete(m.held, c)
		m.advance()
	}
}

// loan is a portion of events as the outboxes of one address share it. The memory counts a portion once,
// and once for each address.
type loan struct {
	m       *memory
	from    *address
	portion *portion
	places  atomic.Int64 // that point into it
}

// uncounted is the loan of every portion that is short.
var uncounted loan

// portion is a buffer of events that outboxes point into.
type portion struct{ size, loans int } // loans under memory.mu

// loanFrom is the length from which the memory hears of a portion.
const loanFrom = 8 << 10

// empty reports whether nothing is held.
func (m *memory) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used == 0
}

// lend counts a portion for an address, if there is room. There is for all of a change if the address had
// nothing before, and, with free, no other. own tells that the address has too much.
func (m *memory) lend(from *address, p *portion, free bool) (l *loan, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !from.alone && !from.roomFor(m.srv, p.size) {
		return nil, true
	}
	if p.loans == 0 {
		if m.used+p.size > m.limit && !free {
			return nil, false
		}
		m.used += p.size
	}
	p.loans++
	from.buffers.Add(int64(p.size))
	l = &loan{m: m, from: from, portion: p}
	l.places.Store(1)
	return l, false
}

// put gives back one place of a loan.
func (l *loan) put() {
	if l == nil || l.places.Add(-1) > 0 {
		return
	}
	m, p := l.m, l.portion
	m.mu.Lock()
	defer m.mu.Unlock()
	l.from.buffers.Add(int64(-p.size))
	if p.loans--; p.loans == 0 {
		m.used -= p.size
	}
	m.advance()
}
