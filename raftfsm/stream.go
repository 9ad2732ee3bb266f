package raftfsm

import (
	"errors"
	"sync"
)

// ErrClosed is returned by Propose when this server has stopped serving.
var ErrClosed = errors.New("server is not serving")

// Bounds of a stream (L7). At the bound Propose blocks, so that the caller
// stops reading from its client.
const (
	streamMaxRequests = 10_000
	streamMaxBytes    = 64 << 20
)

// stream is the numbered queue of everything this server proposes. A request
// stays in it until this server has applied it, so the stream can be sent
// again, from the first unapplied request on, to whoever leads next.
//
// It has one reader at a time (the batcher of a leading server or the link to
// the leader), which takes requests in order from a cursor of its own; the
// reader that begins rewinds the cursor.
type stream struct {
	mu     sync.Mutex
	room   sync.Cond // a request was applied, or the stream closed
	birth  uint32    // 0: not open, nothing can be taken
	first  uint64    // seq of pending[head]
	cursor uint64    // seq the reader takes next
	reader uint64    // who may take; see rewind
	closed bool      // not serving: Propose fails

	pending []pending // pending[head:] are unapplied, in order
	head    int
	buf     []byte // their encodings; pending[head] begins at buf[bufHead]
	bufHead int

	ready chan struct{} // holds a token when the reader may find work
}

// pending is one unapplied request.
type pending struct {
	waiter Waiter
	size   int // of its encoding
}

func newStream() *stream {
	s := &stream{first: 1, cursor: 1, closed: true, ready: make(chan struct{}, 1)}
	s.room.L = &s.mu
	return s
}

// put appends a request, waiting while the stream is full.
func (s *stream) put(r *Request, w Waiter) error {
	s.mu.Lock()
	for !s.closed && (len(s.pending)-s.head >= streamMaxRequests || len(s.buf)-s.bufHead >= streamMaxBytes) {
		s.room.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	at := len(s.buf)
	s.buf = appendRequest(s.buf, r)
	s.pending = append(s.pending, pending{w, len(s.buf) - at})
	s.mu.Unlock()
	s.wake()
	return nil
}

func (s *stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// open begins a new life of the stream under the birth that Apply gave it.
// Requests not yet applied, if any, get new numbers: under the old birth they
// can never be applied any more.
func (s *stream) open(birth uint32) {
	s.mu.Lock()
	s.birth, s.first, s.cursor = birth, 1, 1
	s.mu.Unlock()
	s.wake()
}

// rewind lets a new reader begin at the first unapplied request. The number
// returned is the reader's right to take; an earlier reader that has not
// noticed yet gets nothing any more.
func (s *stream) rewind() (reader uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = s.first
	s.reader++
	s.wake()
	return s.reader
}

// take cuts a block of at most maxCount requests and about maxBytes bytes off
// the cursor. The block's requests are appended to buf; count 0 means that
// there is nothing to take.
func (s *stream) take(reader uint64, id uint32, maxCount, maxBytes int, buf []byte) (bl block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bl = block{origin: id, birth: s.birth, first: s.cursor, requests: buf}
	if s.birth == 0 || s.reader != reader {
		return bl
	}
	from := s.bufHead
	i := s.head
	for seq := s.first; seq < s.cursor; seq++ {
		from += s.pending[i].size
		i++
	}
	to := from
	for ; i < len(s.pending) && int(bl.count) < maxCount; i++ {
		if bl.count > 0 && to-from+s.pending[i].size > maxBytes {
			break
		}
		to += s.pending[i].size
		bl.count++
	}
	bl.requests = append(buf, s.buf[from:to]...)
	s.cursor += uint64(bl.count)
	return bl
}

// applied removes the request with the given number and returns who waits for
// it. It is called by Apply, once for each number, in order.
func (s *stream) applied(birth uint32, seq uint64) Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if birth != s.birth || seq != s.first || s.head == len(s.pending) {
		return nil
	}
	return s.pop()
}

// pop removes the first pending request.
func (s *stream) pop() Waiter {
	p := &s.pending[s.head]
	w := p.waiter
	p.waiter = nil
	s.bufHead += p.size
	s.head++
	s.first++
	s.cursor = max(s.cursor, s.first)
	switch {
	case s.head == len(s.pending):
		s.pending, s.head = s.pending[:0], 0
		s.buf, s.bufHead = s.shrink(), 0
	case s.head >= 1024 && s.head*2 >= len(s.pending):
		s.pending = s.pending[:copy(s.pending, s.pending[s.head:])]
		s.head = 0
		s.buf = s.buf[:copy(s.buf, s.buf[s.bufHead:])]
		s.bufHead = 0
	}
	s.room.Signal()
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
func (s *stream) skipTo(last uint64) (unknown []Waiter) {
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

// setClosed opens or closes the entrance. Closing wakes whoever waits for
// room; what is pending stays.
func (s *stream) setClosed(closed bool) {
	s.mu.Lock()
	s.closed = closed
	s.mu.Unlock()
	s.room.Broadcast()
}

// drain removes everything, for a server that stops.
func (s *stream) drain() (unknown []Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head < len(s.pending) {
		unknown = append(unknown, s.pop())
	}
	return unknown
}

// len returns how many requests are unapplied.
func (s *stream) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) - s.head
}

// birthNow returns the birth the stream lives under.
func (s *stream) birthNow() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.birth
}
