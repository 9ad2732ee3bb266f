package clients

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/observe"
)

// flushSize is how much a connection's own goroutine lets its outbox grow
// before it writes, although more requests are at hand.
const flushSize = 64 << 10

// keepSize is the largest buffer an outbox keeps for the next time.
const keepSize = 16 << 10

// longBuffers are buffers for long replies, from keepSize to maxPooled. A lock with thousands of waiters
// makes such a reply for each of them.
var longBuffers sync.Pool

const maxPooled = 1 << 20

// longBuffer returns an empty buffer for n bytes, whose pages have been touched.
func longBuffer(n int) []byte {
	if b, _ := longBuffers.Get().(*[]byte); b != nil && cap(*b) >= n {
		return *b
	}
	b := make([]byte, n)
	clear(b)
	return b[:0]
}

// pending is a request that was proposed, or parked behind one that was, and is not yet answered.
type pending struct {
	xid    int32
	op     jute.OpCode
	at     time.Duration // when its last byte arrived
	est    int64         // steps that its address was charged for the outcome
	long   bool          // it may change how long answers to parked reads are
	parked []byte        // the frame of a read; nil: it was proposed

	followed *observe.Request // nil: no log wants it
}

// outbox holds the bytes that wait for one client, and the requests that wait for replies. The
// connection's goroutine (under View) and the goroutine that applies the log fill it, a flush
// empties it. One flush runs at a time; a goroutine that finds one under way only appends.
type outbox struct {
	mu      sync.Mutex
	full    []piece // what comes before buf
	fullLen int     // bytes in full
	lent    int     // bytes of all this that are counted as loans
	buf     []byte  // whole frames
	spare   []byte  // the buffer of the flush before
	frames  int     // in full and buf

	// gap: the connection's goroutine builds a long reply, which comes behind
	// this many buffers of full. Until then nothing behind the gap is written.
	gap    bool
	before int

	writing  int // bytes that the flush under way has taken
	held     int // bytes of all this that srv.memory counts
	reserved int // bytes granted beyond held, for a long reply

	state outboxState
	why   endReason     // once state is not open
	stuck time.Duration // since when too much waits and the client takes nothing; 0: unknown

	flushing bool // a flush is under way; it goes on until buf is empty
	own      bool // it is that of the connection's goroutine
	shut     bool // everything is written, and the writing side closed
	closing  bool // the client asked for the end of its session
	touched  bool // waits for a flusher
	told     bool // the same, with events: they may wait longer

	pend     []pending // pend[pendHead:], in the order in which they came
	long     int       // how many of them are long
	pendHead int

	// waiting: the connection's goroutine sleeps until the outbox is written or
	// at most waitFor requests are pending.
	waiting bool
	waitFor int
	wake    *sync.Cond // made when it first sleeps

	stat observe.Conn
}

// piece is whole frames in a buffer that is the outbox's own, or in one that outboxes share.
type piece struct {
	b    []byte
	loan *loan // of a shared buffer; nil: it is the outbox's own
}

type outboxState uint8

const (
	outboxOpen   outboxState = iota
	outboxEnding             // the outbox accepts no more frames; closed once written
	outboxDead               // closed; what is in it is lost
)

// pendingLen returns how many requests wait for their outcome.
func (o *outbox) pendingLen() int { return len(o.pend) - o.pendHead }

func (o *outbox) push(p pending) {
	o.pend = append(o.pend, p)
	if p.long {
		o.long++
	}
}

// front returns the oldest pending request.
func (o *outbox) front() pending { return o.pend[o.pendHead] }

// pop removes the oldest pending request.
func (o *outbox) pop() {
	p := &o.pend[o.pendHead]
	if p.parked = nil; p.long {
		o.long--
	}
	o.pendHead++
	switch {
	case o.pendHead == len(o.pend):
		o.pend, o.pendHead = o.pend[:0], 0
	case o.pendHead >= 64 && o.pendHead >= len(o.pend)/2:
		n := copy(o.pend, o.pend[o.pendHead:])
		o.pend, o.pendHead = o.pend[:n], 0
	}
}

// stuckTime is how long a client may take nothing while too much waits for it.
const stuckTime = 2 * time.Second

// accepts reports whether a frame may be appended. A client that does not take
// what it is sent loses its connection, never a part of what it is sent. However much it is sent at once,
// it has its time. The outbox is locked.
func (c *conn) accepts() bool {
	o := &c.out
	if o.state != outboxOpen {
		return false
	}
	if o.size() < c.srv.o.MaxOutboxBytes && o.frames < c.srv.o.MaxOutboxFrames {
		return true
	}
	now := c.srv.now()
	if o.stuck == 0 {
		o.stuck = now
	}
	if now-o.stuck < stuckTime {
		return true
	}
	o.die(endSlow)
	return false
}

// beginReply starts a reply frame. Its record, of about size bytes, is appended to the
// result and the whole given to endReply.
func (o *outbox) beginReply(xid int32, zxid int64, size int) (b []byte, at int) {
	o.room(4 + jute.ReplyHeaderSize + size)
	b, at = jute.BeginFrame(o.buf)
	return jute.AppendReplyHeader(b, xid, zxid, jute.OK), at
}

// endReply finishes the reply begun at at. An error reply is a bare header.
func (o *outbox) endReply(b []byte, at int, code jute.ErrCode) {
	if code != jute.OK {
		b = b[:at+4+jute.ReplyHeaderSize]
	}
	o.endWhole(b, at, code)
}

// endWhole finishes a reply that has its record whatever its code.
func (o *outbox) endWhole(b []byte, at int, code jute.ErrCode) {
	binary.BigEndian.PutUint32(b[at+jute.ReplyHeaderSize:], uint32(code))
	jute.EndFrame(b, at)
	o.buf = b
	o.frames++
	o.stat.Size(len(b) - at - 4)
}

// size returns how many bytes wait.
func (o *outbox) size() int { return o.fullLen + len(o.buf) }

// empty reports whether nothing can be written now.
func (o *outbox) empty() bool { return o.size() == 0 || o.gap && o.before == 0 }

// room makes room for n bytes in buf. A long buf does not grow: growth would
// copy it under the state lock, again and again.
func (o *outbox) room(n int) {
	if n += len(o.buf); n <= max(cap(o.buf), keepSize) {
		return
	}
	if len(o.buf) > quickSize {
		n -= len(o.buf)
		o.cut()
	}
	o.buf = append(make([]byte, 0, max(n, keepSize, min(o.fullLen/4, 4*flushSize))), o.buf...)
}

// cut begins a new buffer.
func (o *outbox) cut() {
	if len(o.buf) > 0 {
		o.full, o.fullLen, o.buf = append(o.full, piece{b: o.buf}), o.fullLen+len(o.buf), nil
	}
}

// append appends a whole frame.
func (o *outbox) append(frame []byte) {
	o.room(len(frame))
	o.buf = append(o.buf, frame...)
	o.frames++
}

// tell appends events, which are the part of b from one place to another, and reports whether the outbox
// points into b now. l is the loan of b.
func (o *outbox) tell(b []byte, from, to, frames int, l *loan) (shared bool) {
	n := to - from
	o.frames += frames
	if n < quickSize && (o.size() > 0 || cap(o.buf) >= n) || l == nil && 2*n < len(b) {
		o.room(n)
		o.buf = append(o.buf, b[from:to]...)
		return false
	}
	o.cut()
	if l == nil {
		l = &uncounted
	} else {
		o.lent += n
		l.places.Add(1)
	}
	o.full, o.fullLen = append(o.full, piece{b[from:to], l}), o.fullLen+n
	return true
}

// openGap leaves a gap for a long reply.
func (o *outbox) openGap() {
	o.cut()
	o.gap, o.before = true, len(o.full)
}

// fill ends the gap with the reply that belongs there.
func (o *outbox) fill(reply ...piece) {
	o.gap = false
	if o.state != outboxOpen { // what is behind the gap must not come without the reply
		o.cut()
		for ; len(o.full) > o.before; o.full = o.full[:len(o.full)-1] {
			p := o.full[len(o.full)-1]
			o.fullLen -= len(p.b)
			o.lost(p)
		}
		return
	}
	reply = slices.DeleteFunc(reply, func(p piece) bool { return len(p.b) == 0 })
	size := 0
	for _, p := range reply {
		size += len(p.b)
	}
	o.full = slices.Insert(o.full, o.before, reply...)
	o.fullLen += size
	o.frames++
	o.stat.Size(size - 4)
}

// end lets the outbox be written and then closed.
func (o *outbox) end(why endReason) {
	if o.state == outboxOpen {
		o.state, o.why = outboxEnding, why
	}
}

// die closes the outbox at once.
func (o *outbox) die(why endReason) {
	if o.state == outboxOpen {
		o.why = why
	}
	o.state = outboxDead
	for _, p := range o.full {
		o.lost(p)
	}
	o.full, o.fullLen, o.buf, o.spare, o.reserved = nil, 0, nil, nil, 0
}

// lost ends the loan of a piece.
func (o *outbox) lost(p piece) {
	if p.loan != nil && p.loan != &uncounted {
		o.lent -= len(p.b)
		p.loan.put()
	}
}

// take returns what to write next.
func (o *outbox) take() (p piece, frames int) {
	frames, o.frames = o.frames, 0
	if len(o.full) == 0 {
		p.b, o.buf, o.spare = o.buf, o.spare, nil
		return p, frames
	}
	p, o.full[0] = o.full[0], piece{}
	if o.full, o.fullLen = o.full[1:], o.fullLen-len(p.b); len(o.full) == 0 {
		o.full = nil
	}
	if o.gap {
		o.before--
	}
	n, m := len(p.b), len(o.buf)
	if p.loan != &uncounted || o.full != nil || o.gap || m == 0 || n+m > keepSize {
		return p, frames
	}
	b := slices.Grow(o.buf, n)[:n+m] // a short event goes with what is behind it
	copy(b[n:], b[:m])
	copy(b, p.b)
	o.buf, o.spare = o.spare, nil
	return piece{b: b}, frames
}

// give returns what a finished write has taken. A buffer of the usual size is kept, a longer one is for any
// reply.
func (o *outbox) give(p piece) {
	o.lost(p)
	if n := cap(p.b); p.loan == nil && n > keepSize && n <= maxPooled {
		p.b = p.b[:0]
		longBuffers.Put(&p.b)
		return
	}
	if cap(p.b) > keepSize || p.loan != nil || o.state == outboxDead {
		return
	}
	b := p.b[:0]
	if o.buf == nil {
		o.buf = b
	} else {
		o.spare = b
	}
}
