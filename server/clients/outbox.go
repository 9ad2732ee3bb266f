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
	full    [][]byte // buffers that come before buf
	fullLen int      // bytes in full
	buf     []byte   // whole frames
	spare   []byte   // the buffer of the flush before
	frames  int      // in full and buf

	// gap: the connection's goroutine builds a long reply, which comes behind
	// this many buffers of full. Until then nothing behind the gap is written.
	gap    bool
	before int

	writing  int // bytes that the flush under way has taken
	held     int // bytes of all this that srv.memory counts
	reserved int // bytes granted beyond held, for a long reply

	state outboxState
	why   endReason // once state is not open

	flushing bool // a flush is under way; it goes on until buf is empty
	own      bool // it is that of the connection's goroutine
	shut     bool // everything is written, and the writing side closed
	closing  bool // the client asked for the end of its session
	touched  bool // waits for a flusher

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

// accepts reports whether a frame may be appended. A client that does not take
// what it is sent loses its connection, never a part of what it is sent.
func (o *outbox) accepts(opt *Options) bool {
	if o.state != outboxOpen {
		return false
	}
	if o.size() >= opt.MaxOutboxBytes || o.frames >= opt.MaxOutboxFrames {
		o.die(endSlow)
		return false
	}
	return true
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
		o.full, o.fullLen, o.buf = append(o.full, o.buf), o.fullLen+len(o.buf), nil
	}
}

// append appends a whole frame.
func (o *outbox) append(frame []byte) {
	o.room(len(frame))
	o.buf = append(o.buf, frame...)
	o.frames++
}

// openGap leaves a gap for a long reply.
func (o *outbox) openGap() {
	o.cut()
	o.gap, o.before = true, len(o.full)
}

// fill ends the gap with the reply that belongs there.
func (o *outbox) fill(reply []byte) {
	o.gap = false
	if o.state != outboxOpen { // what is behind the gap must not come without the reply
		o.cut()
		for ; len(o.full) > o.before; o.full = o.full[:len(o.full)-1] {
			o.fullLen -= len(o.full[len(o.full)-1])
		}
		return
	}
	o.full = slices.Insert(o.full, o.before, reply)
	o.fullLen += len(reply)
	o.frames++
	o.stat.Size(len(reply) - 4)
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
	o.full, o.fullLen, o.buf, o.spare, o.reserved = nil, 0, nil, nil, 0
}

// take returns the bytes to write next.
func (o *outbox) take() (b []byte, frames int) {
	frames, o.frames = o.frames, 0
	if len(o.full) == 0 {
		b, o.buf, o.spare = o.buf, o.spare, nil
		return b, frames
	}
	b, o.full[0] = o.full[0], nil
	if o.full, o.fullLen = o.full[1:], o.fullLen-len(b); len(o.full) == 0 {
		o.full = nil
	}
	if o.gap {
		o.before--
	}
	return b, frames
}

// give returns the buffer of a finished write.
func (o *outbox) give(b []byte) {
	if cap(b) > keepSize || o.state == outboxDead {
		return
	}
	b = b[:0]
	if o.buf == nil {
		o.buf = b
	} else {
		o.spare = b
	}
}
