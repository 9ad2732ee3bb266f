// Package stream numbers the requests that this server proposes, and holds them until this server has applied
// them. Connections put requests into a Stream. One reader at a time takes them: a leader's batcher, or the
// link to the leader. One lock guards everything in a Stream except the token that wakes the reader.
package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime/trace"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
)

// ErrClosed is returned by Put when this server has stopped serving.
var ErrClosed = errors.New("server is not serving")

// Bounds of a stream. At the bound Put blocks, so that the caller stops reading from its client. A session
// with no waiting request may put requests up to twice the bound. Otherwise the sessions that fill the stream
// would shut out all others.
const (
	maxRequests = 10_000
	maxBytes    = 32 << 20
)

// Bounds of an entry, and of a block on a link. Larger bounds would save syncs, but add more latency than
// that is worth. The leader composes entries of whole blocks, with a fair share for each server.
const (
	BatchRequests = 1000
	BatchBytes    = entries.BatchBytes
	BlockRequests = BatchRequests / 4
	BlockBytes    = BatchBytes / 4
)

// Bounds of the window: the requests that have a number and are not applied. Later requests wait in lanes,
// where their order is not fixed yet. The window holds several entries, so a request that waits for the
// window would wait for the disk anyway.
const (
	windowRequests = 4 * BatchRequests
	windowBytes    = 4 * BatchBytes
)

// Stream is the numbered queue of everything this server proposes. A request stays in the stream until this
// server has applied the request, so the stream can be sent again to the next leader, from the first
// unapplied request on. Requests beyond the window wait in lanes for their numbers: sessions take turns.
//
// A stream has one reader at a time: the batcher while this server leads, else the link to the leader. The
// reader takes requests in order at the cursor. A new reader first moves the cursor back to the first request
// that is not applied.
type Stream struct {
	mu     sync.Mutex
	room   sync.Cond // signals that a request was applied or the stream closed
	birth  uint32    // the birth under which the stream is open; 0: not open, and no request can be taken
	nonce  int64     // nonce of the request for a birth; 0: there is none yet
	first  uint64    // number of pending[head]
	cursor uint64    // number of the request that the reader takes next
	reader Reader    // the reader that may take requests now; see Rewind
	led    bool      // this server leads, so no link may read
	closed bool      // this server does not serve, so Put fails

	pending []pending // pending[head:] are unapplied, in order
	head    int
	buf     []byte // encodings of the pending requests, without identities; pending[head] begins at buf[bufHead]
	bufHead int

	lanes   lanes
	waiters int // how many goroutines wait for room
	scratch []byte

	Opened signal.Signal // sent when the stream was opened
}

// Reader is the right to take requests from a stream. It holds a token when there may be requests. Each
// reader has a token of its own, so that an earlier reader that has not noticed its replacement cannot take
// the token.
type Reader = signal.Signal

// New returns a stream that is closed and has no birth.
func New() *Stream {
	s := &Stream{first: 1, cursor: 1, closed: true, reader: signal.New(), Opened: signal.New()}
	s.room.L = &s.mu
	return s
}

// Put appends a request, waiting while the stream is full.
func (s *Stream) Put(r *state.Request, w state.Waiter) error {
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
	now.Send()
	return nil
}

// full() reports whether a request of this session has to wait for room.
func (s *Stream) full(session int64) bool {
	fill := max(float64(s.lenLocked())/maxRequests,
		float64(len(s.buf)-s.bufHead+s.lanes.bytes)/maxBytes)
	return fill >= 2 || fill >= 1 && s.lanes.waits(session)
}

// windowOpen reports whether another request may have a number.
func (s *Stream) windowOpen() bool {
	return len(s.pending)-s.head < windowRequests && len(s.buf)-s.bufHead < windowBytes
}

// number() gives numbers to requests, in the order in which lanes take turns, while the window is open.
func (s *Stream) number() {
	for s.lanes.count > 0 && s.windowOpen() {
		p, request := s.lanes.next()
		s.pending = append(s.pending, p)
		s.buf = append(s.buf, request...)
	}
}

func (s *Stream) wake() { s.reader.Send() }

// Open begins a new life of the stream under the birth that Apply gave it. Requests that are not applied yet
// get new numbers, because they can no longer be applied under the old birth.
func (s *Stream) Open(birth uint32) {
	s.mu.Lock()
	s.birth, s.first, s.cursor = birth, 1, 1
	s.wake()
	s.mu.Unlock()
}

// Rewind lets a new reader begin at the first unapplied request. An earlier reader that has not noticed this
// gets no more requests. Rewind returns nil while this server leads. Otherwise a link whose setup began
// before this server was elected could take requests away from the batcher.
func (s *Stream) Rewind() Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.led {
		return nil
	}
	return s.rewind()
}

// Lead is Rewind for the term that begins. No other reader replaces the batcher until Leave is called.
func (s *Stream) Lead() Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.led = true
	return s.rewind()
}

// Leave lets links read again, because the term is over.
func (s *Stream) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.led = false
}

func (s *Stream) rewind() Reader {
	s.cursor = s.first
	s.reader = signal.New()
	s.wake()
	return s.reader
}

// Take returns a block of the next requests at the cursor: at most the given number of requests, and about
// the given number of bytes. It appends the block's requests to buf. If no request can be taken, the block's
// Count is 0.
func (s *Stream) Take(by Reader, id uint32, requests, bytes int, buf []byte) (bl entries.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bl = entries.Block{Origin: id, Birth: s.birth, First: s.cursor, Requests: buf}
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
	to, begin := from, len(buf) // buf[from:to] must still be copied
	for ; i < len(s.pending) && int(bl.Count) < requests; i++ {
		p := &s.pending[i]
		if bl.Count > 0 && len(buf)-begin+to-from+p.size+entries.IdentitiesSize(p.ids) > bytes {
			break
		}
		if len(p.ids) > 0 {
			buf = append(buf, s.buf[from:to]...)
			from = to + p.size
			buf = entries.AppendWith(buf, s.buf[to:from], p.ids)
		}
		to += p.size
		bl.Count++
	}
	bl.Requests = append(buf, s.buf[from:to]...)
	s.cursor += uint64(bl.Count)
	if bl.Count > 0 && trace.IsEnabled() {
		signal.Step("stream", "requests %d to %d leave the queue as one block",
			bl.First, bl.First+uint64(bl.Count)-1)
	}
	return bl
}

// Applied removes the request with the given number and returns its waiter. Apply calls it once for
// each number, in order.
func (s *Stream) Applied(birth uint32, seq uint64) state.Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if birth != s.birth || seq != s.first || s.head == len(s.pending) {
		return nil
	}
	return s.pop()
}

// pop() removes the first pending request.
func (s *Stream) pop() state.Waiter {
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
	// Which waiter may continue depends on its session. So wake all waiters at once, but only when there is room
	// for several of them.
	if s.waiters > 0 && s.lenLocked() < maxRequests*3/4 &&
		len(s.buf)-s.bufHead+s.lanes.bytes < maxBytes*3/4 {
		s.room.Broadcast()
	}
	return w
}

// shrink() empties the buffer and returns it. If a burst of requests has made the buffer large, shrink()
// returns nil.
func (s *Stream) shrink() []byte {
	if cap(s.buf) > 1<<20 {
		return nil
	}
	return s.buf[:0]
}

// SkipTo removes the requests up to the number `last`, whose outcomes are unknown because a snapshot covers
// them.
func (s *Stream) SkipTo(last uint64) (unknown []state.Waiter) {
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

// SetClosed sets whether Put fails. Closing wakes the goroutines that wait for room; pending requests stay.
func (s *Stream) SetClosed(closed bool) {
	s.mu.Lock()
	s.closed = closed
	s.mu.Unlock()
	s.room.Broadcast()
}

// Drain removes all requests, because the server stops.
func (s *Stream) Drain() (unknown []state.Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head < len(s.pending) || s.lanes.count > 0 {
		s.number()
		unknown = append(unknown, s.pop())
	}
	return unknown
}

// Len returns how many requests are unapplied.
func (s *Stream) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lenLocked()
}

func (s *Stream) lenLocked() int { return len(s.pending) - s.head + s.lanes.count }

// Birth returns the number of the stream's present life.
func (s *Stream) Birth() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.birth
}

// Opening returns a block with the request to open the stream; Apply then gives the birth. The request may be
// repeated or applied late: its nonce identifies it.
func (s *Stream) Opening(m state.Member, rand io.Reader) entries.Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.nonce == 0 {
		s.nonce = Nonce(rand)
	}
	r := state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), s.nonce)}
	return entries.Block{Origin: m.ID, Count: 1, Requests: r.Append(nil)}
}

// Told is called when a stream of this server was opened, and when the stream was closed because this server
// was removed. It is also called after a snapshot, because the snapshot may cover either event. `again`
// reports whether the stream needs another birth.
func (s *Stream) Told(nonce int64, birth uint32) (again bool) {
	s.mu.Lock()
	is, ours := s.birth, birth != 0 && nonce == s.nonce
	if again = !ours && is != 0; again {
		// Apply has given the stream another birth, because a late request of this server's former process opened
		// it, or none, because the server was removed. No request under the old birth can be applied any longer, so
		// the stream asks for another birth, with a new nonce. Until it has that birth, it keeps the nonce:
		// otherwise it would not recognise the answer to its own request, and would ask again and again.
		s.nonce = 0
	}
	s.mu.Unlock()
	switch {
	case again:
		s.Open(0)
	case ours && is != birth:
		s.Open(birth)
		s.Opened.Send()
	}
	return again
}

// Nonce returns a random number that identifies a request for a birth.
func Nonce(rand io.Reader) int64 {
	var b [8]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("no randomness: " + err.Error())
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}
