package budget

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// Memory counts the memory that connections hold beyond a small amount each: frames being received, and bytes
// that wait to be written. The total has a bound. If a connection needs more, it waits in line until others
// have freed memory. While it waits, the server closes the connection with the least progress, so that a
// client that neither sends nor reads cannot stop others. A connection asks for the memory of a whole frame
// at once, so that it can always finish the frame.
type Memory struct {
	// The caller sets these fields before it uses the Memory.
	Limit  int
	Shares *Shares
	Now    func() time.Duration
	Waits  func()          // called when a connection has to wait
	Done   <-chan struct{} // closed when the server stops

	mu   sync.Mutex
	used int
	most int // the peak of `used`
	held map[Holder]*holding
	line []*waiting
}

// Holder is a connection that holds memory.
type Holder interface {
	// Account returns the account of the connection's address.
	Account() *Account
	// Number returns the connection's number among all connections of the server.
	Number() uint64
	// IsOpen reports whether the connection has not begun to end.
	IsOpen() bool
	// Alive records that the connection's client is not silent: the client's next bytes are delayed only
	// because the server waits for memory.
	Alive()
	// CountWatches counts the memory of all watches of the connection's address again.
	CountWatches()
	// Close ends the connection.
	Close(ends.Reason)
}

// holding is the memory of one connection.
type holding struct {
	part    [2]int        // bytes of input and bytes of output
	since   time.Duration // time of the connection's last progress
	moved   int           // bytes since the time of the last progress
	partial bool          // the frame in input is not complete
}

// Part names a part of the memory of a connection.
type Part int

// The parts.
const (
	Input Part = iota
	Output
)

// waiting is a connection that waits until one part of its memory may have n bytes.
type waiting struct {
	c       Holder
	part    Part
	n       int
	own     bool          // true: the connection waits until others from its address free memory
	granted chan struct{} // closed as soon as the memory is granted
}

// Times of the wait for memory.
const (
	poll  = 50 * time.Millisecond  // time between two checks for progress
	Grace = 500 * time.Millisecond // how long a client without progress may make others wait
)

// pace is the number of bytes that count as progress when a client has sent or read them. On a busy machine a
// frame of many megabytes takes long.
const pace = 64 << 10

// Wait sets the size of a part of c's memory to n bytes, as soon as there is room for it. It returns false
// when the connection has ended.
func (m *Memory) Wait(c Holder, part Part, n int) bool {
	m.mu.Lock()
	if len(m.line) == 0 && m.set(c, part, n, false) || n <= m.partOf(c, part) && m.set(c, part, n, true) {
		m.mu.Unlock()
		return true
	}
	w := &waiting{c: c, part: part, n: n, granted: make(chan struct{})}
	m.line = append(m.line, w)
	m.advance() // w may get memory at once: some before it may only wait for memory of their own address
	m.mu.Unlock()
	m.Waits()
	again := time.NewTicker(poll)
	defer again.Stop()
	for {
		m.recount(w)
		if slow, why := m.Slowest(w.c, m.own(w)); slow != nil {
			slow.Close(why)
		}
		select {
		case <-w.granted:
			return true
		case <-again.C:
		case <-m.Done:
		}
		c.Alive()
		if !c.IsOpen() || m.over() {
			m.leave(w)
			return false
		}
	}
}

// over() reports whether the server has begun to stop.
func (m *Memory) over() bool {
	select {
	case <-m.Done:
		return true
	default:
		return false
	}
}

// recount adds up the memory of w's address again if w waits for memory of that address. Watches that have
// fired may have freed some.
func (m *Memory) recount(w *waiting) {
	if m.own(w) {
		w.c.CountWatches()
		m.mu.Lock()
		m.advance()
		m.mu.Unlock()
	}
}

// own() reports whether w waits for memory that its own address uses.
func (m *Memory) own(w *waiting) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.own
}

// leave removes w from the line, if it is still in the line. If w has been granted memory, the end of its
// connection frees it.
func (m *Memory) leave(w *waiting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.line, w); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.advance() // the next in line may now fit
	}
}

// Try is like Wait, but never blocks. It returns false if there is no room. If `force` is true, it takes the
// memory in any case.
func (m *Memory) Try(c Holder, part Part, n int, force bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(c, part, n, force)
}

func (m *Memory) partOf(c Holder, part Part) int {
	if h := m.held[c]; h != nil {
		return h.part[part]
	}
	return 0
}

// set() sets the size of a part of c's memory to n bytes, if there is room. There is always room for a
// smaller part than before, and for the only connection. m is locked.
func (m *Memory) set(c Holder, part Part, n int, force bool) bool {
	h := m.held[c]
	if h == nil {
		h = &holding{since: m.Now()}
	}
	a := c.Account()
	more, mine := n-h.part[part], h.part[Input]+h.part[Output]
	if more > 0 && !force {
		full := m.used+more > m.Limit && m.used > mine
		if full || !m.Shares.Room(a, more) && a.buffers.Load() > int64(mine) {
			return false
		}
	}
	a.buffers.Add(int64(more))
	h.part[part] = n
	m.used += more
	m.most = max(m.most, m.used)
	if h.part == [2]int{} {
		delete(m.held, c)
	} else {
		if m.held == nil {
			m.held = make(map[Holder]*holding)
		}
		m.held[c] = h
	}
	if more < 0 {
		m.advance()
	}
	return true
}

// advance grants memory to the connections in line, in order, as long as there is room. It skips connections
// whose own address has too much. m is locked.
func (m *Memory) advance() {
	left, full := m.line[:0], false
	for _, w := range m.line {
		has := m.partOf(w.c, w.part)
		w.own = !m.Shares.Room(w.c.Account(), w.n-has)
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

// Slowest returns the connection that has been without progress for the longest time, if that is longer than
// Grace. w is a connection that waits for memory. If `own` is true, the memory of w's address is used up, and
// Slowest considers only connections from that address. Only a connection that is receiving a frame or has
// unread output counts. If the slowest is w itself, the result is nil: another connection that waits will
// close w.
func (m *Memory) Slowest(w Holder, own bool) (slow Holder, why ends.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := m.Now() - Grace
	for other, h := range m.held {
		if own && other.Account() != w.Account() {
			continue
		}
		older := h.since < longest || h.since == longest && (slow == nil || other.Number() < slow.Number())
		if older && (h.partial || h.part[Output] > 0) {
			slow, longest, why = other, h.since, ends.Slow
			if h.partial {
				why = ends.Stalled
			}
		}
	}
	if slow == w {
		return nil, ends.None
	}
	return slow, why
}

// Partial records whether the frame that c is receiving is incomplete.
func (m *Memory) Partial(c Holder, partial bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[c]; h != nil && h.partial != partial {
		h.since, h.moved, h.partial = m.Now(), 0, partial
	}
}

// Moved records that c's client has sent or read n bytes of a large frame.
func (m *Memory) Moved(c Holder, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held[c]
	if h == nil {
		return
	}
	if h.moved += n; h.moved >= pace {
		h.since, h.moved = m.Now(), 0
	}
}

// Drop frees all memory of c.
func (m *Memory) Drop(c Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[c]; h != nil {
		m.used -= h.part[Input] + h.part[Output]
		c.Account().buffers.Add(-int64(h.part[Input] + h.part[Output]))
		delete(m.held, c)
		m.advance()
	}
}

// Loan says that outboxes of one address point into a portion of events. In the total of all memory a portion
// counts once; it also counts once for each address with a loan.
type Loan struct {
	m       *Memory
	from    *Account
	portion *Portion
	places  atomic.Int64 // places in outboxes that point into the portion
}

// Share adds a place that points into the portion.
func (l *Loan) Share() { l.places.Add(1) }

// Uncounted is the loan of every short portion, which Memory does not count.
var Uncounted Loan

// Portion is a buffer of events that outboxes point into.
type Portion struct{ size, loans int } // `loans` is guarded by Memory.mu

// NewPortion returns a portion of `size` bytes without loans.
func NewPortion(size int) *Portion { return &Portion{size: size} }

// LoanFrom is the shortest length of a portion that Memory counts.
const LoanFrom = 8 << 10

// Used returns how many bytes the connections hold.
func (m *Memory) Used() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Most returns the largest number of bytes that the connections have held at one moment. It is for tests.
func (m *Memory) Most() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// Lend begins a loan: it counts a portion for an address, if the bounds allow it. `alone` says that the
// address had no buffers before: then its bound does not matter. `free` says that no memory was in use: then
// the bound of all memory does not matter. If the bound of the address forbids the loan, `own` is true.
func (m *Memory) Lend(from *Account, p *Portion, alone, free bool) (l *Loan, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !alone && !m.Shares.Room(from, p.size) {
		return nil, true
	}
	if p.loans == 0 {
		if m.used+p.size > m.Limit && !free {
			return nil, false
		}
		m.used += p.size
		m.most = max(m.most, m.used)
	}
	p.loans++
	from.buffers.Add(int64(p.size))
	l = &Loan{m: m, from: from, portion: p}
	l.places.Store(1)
	return l, false
}

// Put removes one place that points into the portion. The last Put ends the loan.
func (l *Loan) Put() {
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
