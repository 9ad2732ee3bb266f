package raftfsm

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime/trace"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// ErrClosed is returned by Propose when this server has stopped serving.
var ErrClosed = errors.New("server is not serving")

// Bounds of a stream (L7). At the bound Propose blocks, so that the caller stops reading from its
// client; a session that has nothing waiting is let in up to twice the bound, or the sessions that
// fill the stream would shut out all others.
const (
	streamMaxRequests = 10_000
	streamMaxBytes    = 32 << 20
)

// Bounds of the window: the requests that have a number and are not applied. Behind it requests
// wait in lanes, where the order is still open. The window holds several entries, so that no
// request waits for it that would not wait for the disk.
const (
	windowRequests = 4 * batchRequests
	windowBytes    = 4 * batchBytes
)

// stream is the numbered queue of everything this server proposes. A request stays in it until this
// server has applied it, so the stream can be sent again, from the first unapplied request on, to
// the next leader. Requests beyond the window wait in lanes for their numbers: sessions take turns.
//
// It has one reader at a time (the batcher of a leading server or the link to
// the leader), which takes requests in order from a cursor of its own; the
// reader that begins rewinds the cursor.
type stream struct {
	mu     sync.Mutex
	room   sync.Cond // a request was applied, or the stream closed
	birth  uint32    // 0: not open, nothing can be taken
	nonce  int64     // of the request for a birth; 0: none yet
	first  uint64    // seq of pending[head]
	cursor uint64    // seq the reader takes next
	reader reader    // that may take; see rewind
	closed bool      // not serving: Propose fails

	pending []pending // pending[head:] are unapplied, in order
	head    int
	buf     []byte // their encodings, without identities; pending[head] begins at buf[bufHead]
	bufHead int

	lanes   lanes
	waiters int // goroutines that wait for room
	scratch []byte

	opened signal // that the stream was opened
}

// reader takes requests from a stream. It holds a token when it may find some. An earlier reader, which
// has not noticed yet that another has taken its place, cannot take that token.
type reader = signal

// pending is one unapplied request.
type pending struct {
	waiter state.Waiter
	size   int       // of its encoding in buf
	ids    []jute.ID // shared by all requests of a connection: they may be much longer than the rest
}

func newStream() *stream {
	s := &stream{first: 1, cursor: 1, closed: true, reader: newSignal(), opened: newSignal()}
	s.room.L = &s.mu
	return s
}

// Propose puts a request into this server's stream. It copies the request and blocks while the
// stream is full. The waiter learns the outcome, unless Propose returns an error: then this server
// does not serve.
func (n *Node) Propose(r state.Request, w state.Waiter) error {
	if r.Long() && (n.fsm.low.Load() || n.fsm.full.Load() && r.Op == jute.OpSetACL) {
		r = r.Refusal()
	}
	if trace.IsEnabled() {
		noteStep("request", "session 0x%x: %v, %d bytes, goes into this server's stream",
			r.Session, r.Op, len(r.Body))
	}
	return n.fsm.stream.put(&r, w)
}

// put appends a request, waiting while the stream is full.
func (s *stream) put(r *state.Request, w state.Waiter) error {
	if err := r.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	for !s.closed && s.full(r.Session) {
		s.waiters++
		s.room.Wait()
		s.waiters--
	}
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	p := pending{waiter: w, ids: r.IDs}
	r.IDs = nil
	if s.lanes.count == 0 && s.windowOpen() {
		at := len(s.buf)
		s.buf = r.Append(s.buf)
		p.size = len(s.buf) - at
		s.pending = append(s.pending, p)
	} else {
		s.scratch = r.Append(s.scratch[:0])
		p.size = len(s.scratch)
		s.lanes.add(r.Session, p, s.scratch)
		if cap(s.scratch) > 1<<20 {
			s.scratch = nil
		}
	}
	now := s.reader
	s.mu.Unlock()
	now.send()
	return nil
}

// full reports whether a request of this session has to wait for room.
func (s *stream) full(session int64) bool {
	fill := max(float64(s.lenLocked())/streamMaxRequests,
		float64(len(s.buf)-s.bufHead+s.lanes.bytes)/streamMaxBytes)
	return fill >= 2 || fill >= 1 && s.lanes.waits(session)
}

// windowOpen reports whether another request may have a number.
func (s *stream) windowOpen() bool {
	return len(s.pending)-s.head < windowRequests && len(s.buf)-s.bufHead < windowBytes
}

// number gives numbers to the requests whose turn it is, while the window is open.
func (s *stream) number() {
	for s.lanes.count > 0 && s.windowOpen() {
		p, request := s.lanes.next()
		s.pending = append(s.pending, p)
		s.buf = append(s.buf, request...)
	}
}

func (s *stream) wake() { s.reader.send() }

// open begins a new life of the stream under the birth that Apply gave it.
// Requests not yet applied, if any, get new numbers: under the old birth they
// can never be applied any more.
func (s *stream) open(birth uint32) {
	s.mu.Lock()
	s.birth, s.first, s.cursor = birth, 1, 1
	s.wake()
	s.mu.Unlock()
}

// rewind lets a new reader begin at the first unapplied request. An earlier reader that has not
// noticed yet gets nothing any more.
func (s *stream) rewind() reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = s.first
	s.reader = newSignal()
	s.wake()
	return s.reader
}

// take cuts a block of at most maxCount requests and about maxBytes bytes off
// the cursor. The block's requests are appended to buf; count 0 means that
// there is nothing to take.
func (s *stream) take(by reader, id uint32, maxCount, maxBytes int, buf []byte) (bl state.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bl = state.Block{Origin: id, Birth: s.birth, First: s.cursor, Requests: buf}
	if s.birth == 0 || s.reader != by {
		return bl
	}
	s.number()
	from := s.bufHead
	i := s.head
	for seq := s.first; seq < s.cursor; seq++ {
		from += s.pending[i].size
		i++
	}
	to, begin := from, len(buf) // buf[from:to] is yet to be copied
	for ; i < len(s.pending) && int(bl.Count) < maxCount; i++ {
		p := &s.pending[i]
		if bl.Count > 0 && len(buf)-begin+to-from+p.size+state.IdentitiesSize(p.ids) > maxBytes {
			break
		}
		if len(p.ids) > 0 {
			buf = append(buf, s.buf[from:to]...)
			from = to + p.size
			buf = state.AppendWith(buf, s.buf[to:from], p.ids)
		}
		to += p.size
		bl.Count++
	}
	bl.Requests = append(buf, s.buf[from:to]...)
	s.cursor += uint64(bl.Count)
	if bl.Count > 0 && trace.IsEnabled() {
		noteStep("stream", "requests %d to %d are taken, in a block", bl.First, bl.First+uint64(bl.Count)-1)
	}
	return bl
}

// applied removes the request with the given number and returns its waiter. Apply calls it once for
// each number, in order.
func (s *stream) applied(birth uint32, seq uint64) state.Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if birth != s.birth || seq != s.first || s.head == len(s.pending) {
		return nil
	}
	return s.pop()
}

// pop removes the first pending request.
func (s *stream) pop() state.Waiter {
	p := &s.pending[s.head]
	w := p.waiter
	p.waiter, p.ids = nil, nil
	s.bufHead += p.size
	s.head++
	s.first++
	s.cursor = max(s.cursor, s.first)
	switch {
	case s.head == len(s.pending):
		s.pending, s.head = s.pending[:0], 0
		s.buf, s.bufHead = s.shrink(), 0
	default:
		if s.head >= 1024 && s.head*2 >= len(s.pending) {
			s.pending = s.pending[:copy(s.pending, s.pending[s.head:])]
			s.head = 0
		}
		if s.bufHead >= 1<<20 && s.bufHead*2 >= len(s.buf) {
			s.buf = s.buf[:copy(s.buf, s.buf[s.bufHead:])]
			s.bufHead = 0
		}
	}
	if s.lanes.count > 0 {
		s.wake()
	}
	// All waiters at once, and not before there is room for some: which of them may go on depends on
	// their sessions.
	if s.waiters > 0 && s.lenLocked() < streamMaxRequests*3/4 &&
		len(s.buf)-s.bufHead+s.lanes.bytes < streamMaxBytes*3/4 {
		s.room.Broadcast()
	}
	return w
}

// shrink returns the empty buffer, or none if a burst has made it large.
func (s *stream) shrink() []byte {
	if cap(s.buf) > 1<<20 {
		return nil
	}
	return s.buf[:0]
}

// skipTo removes the requests up to last, whose outcome a snapshot hides.
func (s *stream) skipTo(last uint64) (unknown []state.Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.first <= last && s.head < len(s.pending) {
		unknown = append(unknown, s.pop())
	}
	if s.first <= last {
		s.first, s.cursor = last+1, last+1
	}
	return unknown
}

// setClosed opens or closes the entrance. Closing wakes the goroutines that wait for room; pending
// requests stay.
func (s *stream) setClosed(closed bool) {
	s.mu.Lock()
	s.closed = closed
	s.mu.Unlock()
	s.room.Broadcast()
}

// drain removes everything, for a server that stops.
func (s *stream) drain() (unknown []state.Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head < len(s.pending) || s.lanes.count > 0 {
		s.number()
		unknown = append(unknown, s.pop())
	}
	return unknown
}

// len returns how many requests are unapplied.
func (s *stream) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lenLocked()
}

func (s *stream) lenLocked() int { return len(s.pending) - s.head + s.lanes.count }

// birthNow returns the birth the stream lives under.
func (s *stream) birthNow() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.birth
}

// opening returns the request for the stream's birth, which Apply gives, as the block that carries
// it. The request may be repeated, and be applied late: its nonce tells which it was.
func (s *stream) opening(m state.Member, rand io.Reader) state.Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.nonce == 0 {
		s.nonce = randomInt(rand)
	}
	r := state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), s.nonce)}
	return state.Block{Origin: m.ID, Count: 1, Requests: r.Append(nil)}
}

// told is called when a stream of this server was opened or, by its removal, taken away, and after
// a snapshot, in which either may be hidden. It reports whether the stream needs another birth.
func (s *stream) told(nonce int64, birth uint32) (again bool) {
	s.mu.Lock()
	is, ours := s.birth, birth != 0 && nonce == s.nonce
	if again = !ours && is != 0; again {
		// An earlier life of this server opened its stream late and took ours
		// away, or the server was removed. Nothing under the old birth can be
		// applied any more: begin again. But not while a request of ours is still
		// on its way: with a new nonce that one would be taken for another life's
		// when it is applied, and where requests are repeated faster than they
		// are applied, so would the next, forever.
		s.nonce = 0
	}
	s.mu.Unlock()
	switch {
	case again:
		s.open(0)
	case ours && is != birth:
		s.open(birth)
		s.opened.send()
	}
	return again
}

// opening returns the request for this server's stream, and whether it has yet to be opened.
func (n *Node) opening() (bl state.Block, wanted bool) {
	if n.fsm.stream.birthNow() != 0 {
		return bl, false
	}
	m := state.Member{ID: n.id, Incarnation: n.disk.Identity().Incarnation, PeerAddr: n.o.Peers[n.id],
		ClientAddr: n.o.ClientAddr}
	return n.fsm.stream.opening(m, n.o.Rand), true
}

// openOwnStream lets a leader ask itself for its stream, if it has none. A
// follower asks over its link.
func (n *Node) openOwnStream() {
	if bl, wanted := n.opening(); wanted {
		if t := n.term.Load(); t != nil {
			t.acts.addOpen(bl)
			t.wake()
		}
	}
}

func randomInt(rand io.Reader) int64 {
	var b [8]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}
