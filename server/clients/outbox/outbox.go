// Package outbox holds the frames that wait for one client, and sends them. It has the frames in the order of
// the state, the requests that wait for their outcomes, the flushes that write the frames, the pool of
// flushers, the bounds on unread bytes, and the end of the connection. It does not know what a request does.
package outbox

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/observe"
)

// FlushSize is the size of the outbox at which a connection's own goroutine writes, even if more requests
// have arrived.
const FlushSize = 64 << 10

// KeepSize is the largest buffer that an outbox keeps for reuse.
const KeepSize = 16 << 10

// longBuffers are buffers for long replies, from KeepSize to maxPooled. They are reused, because each of
// thousands of clients that wait for a lock may read the list of all of them.
var longBuffers sync.Pool

const maxPooled = 1 << 20

// longBuffer returns an empty buffer for n bytes. The process has already written to all its pages, so the
// system need not provide them later, when the caller holds locks.
func longBuffer(n int) []byte {
	if b, _ := longBuffers.Get().(*[]byte); b != nil && cap(*b) >= n {
		return *b
	}
	b := make([]byte, n)
	clear(b)
	return b[:0]
}

// Outbox holds the bytes that wait for one client, and the requests that wait for replies. The connection's
// goroutine (under View) and the goroutine that applies the log append to it; a flush writes and empties it.
// Only one flush runs at a time. While a flush runs, other goroutines only append.
//
// The lock of the outbox guards all fields, except `socket`, which does not change, and `flight`, which
// belongs to the running flush.
type Outbox struct {
	sync.Mutex

	s     *Shared
	owner Owner
	socket
	flight

	queue
	requests
	sleeper
	visits
	holding
	end
	Secure bool // the connection uses TLS; placed here so that all booleans share one word

	Stat observe.Conn
}

// socket is the network side of the connection. It is set before the connection's first goroutine starts.
type socket struct {
	NC  net.Conn
	Raw syscall.RawConn // nil: the connection is not plain TCP
}

// Shared has the parts that the outboxes of a server share.
type Shared struct {
	Flushers
	Memory    *budget.Memory
	Metrics   *metrics.Set
	Now       func() time.Duration
	Go        func(func()) // runs a goroutine that the server waits for
	MaxBytes  int
	MaxFrames int
}

// Owner is the connection to which the outbox belongs. The outbox calls it when the connection ends or when
// the outbox is large, never for an ordinary reply.
type Owner interface {
	budget.Holder
	// Wake makes a resting connection notice that it ends.
	Wake()
}

// flight is what the running flush writes: the piece `sent`, of which `unsent` is left.
type flight struct {
	sent   piece
	unsent []byte // the part of the piece that is not written yet
}

// Init prepares the outbox of the connection `owner`. `config` is nil if the connection does not use TLS.
func (o *Outbox) Init(s *Shared, owner Owner, nc net.Conn, config *tls.Config) {
	o.s, o.owner, o.NC, o.Stat = s, owner, nc, observe.NewConn()
	if config != nil {
		o.NC, o.Secure = tls.Server(nc, config), true
	} else if tc, ok := nc.(*net.TCPConn); ok {
		if raw, err := tc.SyscallConn(); err == nil {
			o.Raw = raw
		}
	}
}

// queue holds the frames that wait to be written, in order.
type queue struct {
	full    []piece // the pieces before `buf`
	fullLen int     // number of bytes in `full`
	lent    int     // bytes that Memory counts as loans, because they are in shared buffers
	buf     []byte  // whole frames
	spare   []byte  // the buffer of the last flush, for reuse
	frames  int     // number of frames in `full` and `buf`

	// gap says that the connection's goroutine is building a long reply, for which the queue has a gap after the
	// first `before` pieces of `full`. Nothing after the gap is written until Fill has filled it.
	gap    bool
	before int
}

// sleeper blocks the connection's goroutine until the outbox is written or at most waitFor requests are
// pending.
type sleeper struct {
	waiting bool
	waitFor int32
	wake    *sync.Cond // made at the first sleep
}

// visits says whether a flush runs, and whether one must follow.
type visits struct {
	flushing bool // a flush runs until the frames are written
	own      bool // the connection's goroutine runs the flush
	touched  bool // the outbox waits for a flusher
	told     bool // the outbox waits for a flusher because of events; a flush for events may come later
}

// holding says how much memory the outbox holds.
type holding struct {
	writing  int           // bytes that the running flush has taken out of the queue
	held     int           // how many bytes of the outbox Memory counts
	reserved int           // bytes granted for a long reply, in addition to `held`
	stuck    time.Duration // when the outbox became full and the client stopped reading; 0: unknown
}

// end says whether the connection ends, and why.
type end struct {
	state   state
	why     ends.Reason // the reason for the end; set when `state` is no longer `open`
	shut    bool        // all frames were written, and then the server closed its writing side
	closing bool        // the client asked for the end of its session
}

// piece holds whole frames, in a buffer of the outbox or in one that several outboxes share.
type piece struct {
	b    []byte
	loan *budget.Loan // loan of a shared buffer; nil: the buffer is the outbox's own
}

type state uint8

const (
	open   state = iota
	ending       // no further frame is accepted; the connection closes when the waiting frames are written
	dead         // the connection is closed, and the remaining frames are lost
)

// Owner returns the connection to which the outbox belongs.
func (o *Outbox) Owner() Owner { return o.owner }

// AppendEvent appends an event.
func (o *Outbox) AppendEvent(zxid int64, e jute.EventType, path string) {
	o.room(len(path) + 64)
	o.buf = jute.AppendEventFrame(o.buf, zxid, e, path)
	o.frames++
}

// Reserved returns how many bytes are granted for a long reply, in addition to the bytes that the outbox
// holds.
func (o *Outbox) Reserved() int { return o.reserved }

// Closing reports whether the client has asked for the end of its session.
func (o *Outbox) Closing() bool { return o.closing }

// SetClosing notes that the client asks for the end of its session.
func (o *Outbox) SetClosing() { o.closing = true }

// sleep() unlocks the outbox and blocks the connection's goroutine until rouse() is called.
func (o *Outbox) sleep(waitFor int) {
	o.waiting, o.waitFor = true, int32(waitFor)
	if o.wake == nil {
		o.wake = sync.NewCond(&o.Mutex)
	}
	o.wake.Wait()
	o.waiting = false
}

// rouse wakes the connection's goroutine if it sleeps.
func (s *sleeper) rouse() {
	if s.waiting {
		s.wake.Signal()
	}
}

// BeginReply starts a reply frame. The caller appends the reply's record, of about `size` bytes, to b and
// passes the result to EndReply.
func (o *Outbox) BeginReply(xid int32, zxid int64, size int) (b []byte, at int) {
	o.room(4 + jute.ReplyHeaderSize + size)
	b, at = jute.BeginFrame(o.buf)
	return jute.AppendReplyHeader(b, xid, zxid, jute.OK), at
}

// EndReply finishes the reply that starts at the offset `at`. With an error code it drops the record.
func (o *Outbox) EndReply(b []byte, at int, code jute.ErrCode) {
	if code != jute.OK {
		b = b[:at+4+jute.ReplyHeaderSize]
	}
	o.EndWhole(b, at, code)
}

// EndWhole finishes a reply like EndReply, but keeps the record even with an error code.
func (o *Outbox) EndWhole(b []byte, at int, code jute.ErrCode) {
	binary.BigEndian.PutUint32(b[at+jute.ReplyHeaderSize:], uint32(code))
	jute.EndFrame(b, at)
	o.buf = b
	o.frames++
	o.Stat.Size(len(b) - at - 4)
}

// Size returns how many bytes wait.
func (q *queue) Size() int { return q.fullLen + len(q.buf) }

// empty() reports whether no frame can be written now.
func (q *queue) empty() bool { return q.Size() == 0 || q.gap && q.before == 0 }

// room makes room for n bytes in buf. It begins a new buffer instead of enlarging a long one, because each
// enlargement would copy the buffer under the state lock.
func (q *queue) room(n int) {
	if n += len(q.buf); n <= max(cap(q.buf), KeepSize) {
		return
	}
	if len(q.buf) > quickSize {
		n -= len(q.buf)
		q.cut()
	}
	q.buf = append(make([]byte, 0, max(n, KeepSize, min(q.fullLen/4, 4*FlushSize))), q.buf...)
}

// cut ends the present buffer, so that the next frames begin a new one.
func (q *queue) cut() {
	if len(q.buf) > 0 {
		q.full, q.fullLen, q.buf = append(q.full, piece{b: q.buf}), q.fullLen+len(q.buf), nil
	}
}

// Append appends a whole frame.
func (q *queue) Append(frame []byte) {
	q.room(len(frame))
	q.buf = append(q.buf, frame...)
	q.frames++
}

// Tell appends the events in b[from:to]. It copies them if they are short; otherwise the outbox points into
// b, and the result is true. l is the loan of b, nil if there is none.
func (q *queue) Tell(b []byte, from, to, frames int, l *budget.Loan) (shared bool) {
	n := to - from
	q.frames += frames
	if n < quickSize && (q.Size() > 0 || cap(q.buf) >= n) || l == nil && 2*n < len(b) {
		q.room(n)
		q.buf = append(q.buf, b[from:to]...)
		return false
	}
	q.cut()
	if l == nil {
		l = &budget.Uncounted
	} else {
		q.lent += n
		l.Share()
	}
	q.full, q.fullLen = append(q.full, piece{b[from:to], l}), q.fullLen+n
	return true
}

// OpenGap leaves a gap for a long reply.
func (q *queue) OpenGap() {
	q.cut()
	q.gap, q.before = true, len(q.full)
}

// Fill puts the reply into the gap. Other replies may share `list`.
func (o *Outbox) Fill(head, list, tail []byte) {
	o.fill(piece{b: head}, piece{list, &budget.Uncounted}, piece{b: tail})
}

func (o *Outbox) fill(reply ...piece) {
	o.gap = false
	if o.state != open { // no reply follows: drop the frames after the gap, or the client would miss a reply
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
	o.Stat.Size(size - 4)
}

// End closes the outbox after everything in it is written.
func (o *Outbox) End(why ends.Reason) {
	if o.state == open {
		o.state, o.why = ending, why
	}
}

// Die closes the outbox at once.
func (o *Outbox) Die(why ends.Reason) {
	if o.state == open {
		o.why = why
	}
	o.state = dead
	for _, p := range o.full {
		o.lost(p)
	}
	o.full, o.fullLen, o.buf, o.spare, o.reserved = nil, 0, nil, nil, 0
}

// lost() ends the loan of a piece.
func (q *queue) lost(p piece) {
	if p.loan != nil && p.loan != &budget.Uncounted {
		q.lent -= len(p.b)
		p.loan.Put()
	}
}

// take removes and returns the piece to write next, and how many frames were waiting.
func (q *queue) take() (p piece, frames int) {
	frames, q.frames = q.frames, 0
	if len(q.full) == 0 {
		p.b, q.buf, q.spare = q.buf, q.spare, nil
		return p, frames
	}
	p, q.full[0] = q.full[0], piece{}
	if q.full, q.fullLen = q.full[1:], q.fullLen-len(p.b); len(q.full) == 0 {
		q.full = nil
	}
	if q.gap {
		q.before--
	}
	n, m := len(p.b), len(q.buf)
	if p.loan != &budget.Uncounted || q.full != nil || q.gap || m == 0 || n+m > KeepSize {
		return p, frames
	}
	b := slices.Grow(q.buf, n)[:n+m] // a short event and the frames after it: join them, to write only once
	copy(b[n:], b[:m])
	copy(b, p.b)
	q.buf, q.spare = q.spare, nil
	return piece{b: b}, frames
}

// give takes back the buffer of a finished write. A long buffer goes to the pool that all outboxes share. The
// outbox keeps one shorter buffer for itself.
func (o *Outbox) give(p piece) {
	o.lost(p)
	if n := cap(p.b); p.loan == nil && n > KeepSize && n <= maxPooled {
		p.b = p.b[:0]
		longBuffers.Put(&p.b)
		return
	}
	if cap(p.b) > KeepSize || p.loan != nil || o.state == dead {
		return
	}
	b := p.b[:0]
	if o.buf == nil {
		o.buf = b
	} else {
		o.spare = b
	}
}

// quickSize is the largest number of bytes that are written without a flusher.
const quickSize = 4 << 10
