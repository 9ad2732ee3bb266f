package zk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// link is one connection of a session, after its handshake.
//
// The goroutine that makes a request writes it. If another goroutine is already writing, that goroutine
// writes the request too. The goroutine of the Conn reads the answers. Writers and reader do not wait for
// each other.
type link struct {
	c      *Conn
	conn   net.Conn
	server string
	br     *bufio.Reader
	silent time.Duration // if the server sends no byte for this long, the connection is dead
	gone   chan struct{} // closed when the reader has ended
	useful bool          // the server has answered, and sent no bad answer; only the reader uses this field
	once   sync.Once

	// c.mu guards the fields below.
	pending []*call // calls that were sent, in the order of their answers
	out     []byte  // bytes that wait to be written
	spare   []byte  // the buffer that replaces `out` while `out` is written
	writing bool    // a goroutine is writing
	unread  int     // bytes of the calls in `pending`; the server may not have read them yet
	wrote   time.Time
}

// roomy is how many unanswered bytes fit into any socket's buffer. Up to that size a write does not wait;
// above it a separate goroutine writes.
const roomy = 32 << 10

var errOrder = errors.New("zk: the answers are out of order: an answer was lost")

// patient is a connection on which a Read fails when no byte has come for the time `silent`. If `silent` is
// 0, Read leaves the deadline as it is. Each Read moves the deadline, because every byte shows that the
// server lives, even if a whole answer takes longer than `silent`.
type patient struct {
	net.Conn
	silent time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if p.silent > 0 {
		if err := p.SetReadDeadline(time.Now().Add(p.silent)); err != nil {
			return 0, err
		}
	}
	return p.Conn.Read(b)
}

func (l *link) close() { l.once.Do(func() { l.conn.Close() }) }

// put() adds a call to the output. The caller holds c.mu and must call flush() afterwards.
func (l *link) put(r *call) {
	xid := r.xid
	if xid == 0 {
		if l.c.xid++; l.c.xid <= 0 {
			l.c.xid = 1
		}
		xid = l.c.xid
	}
	r.stamp(xid)
	r.stage = sent
	l.pending = append(l.pending, r)
	l.unread += len(r.frame)
	l.out = append(l.out, r.frame...)
	l.c.opt.Counters.Requests.Add(1)
}

// flush() writes the output, unless another goroutine does. It is called with c.mu held and unlocks
// it.
func (l *link) flush() {
	switch {
	case l.writing:
		l.c.mu.Unlock() // the goroutine that is writing writes these bytes too
	case l.unread > roomy:
		l.writing = true
		l.c.mu.Unlock()
		go func() {
			l.c.mu.Lock()
			l.write(1 << 30)
		}()
	default:
		l.writing = true
		l.write(callersRounds)
	}
}

// callersRounds bounds how many rounds of writing a caller's goroutine does. Then another goroutine takes
// over.
const callersRounds = 2

// flushSoon leaves the output to the next flush, or to a goroutine that it starts. That goroutine runs when
// the caller's goroutine blocks, or earlier on another processor. flushSoon is called with c.mu held and
// unlocks it.
func (l *link) flushSoon() {
	l.c.mu.Unlock()
	go func() {
		l.c.mu.Lock()
		l.flush()
	}()
}

// write() writes until the output is empty. After the given number of rounds it leaves the rest to another
// goroutine. The goroutine of a caller also leaves the rest when other callers have added so many bytes that
// a write may wait. write() is called with c.mu held and l.writing set.
func (l *link) write(rounds int) {
	left := false
	for len(l.out) > 0 {
		rounds--
		if left = rounds < 0 || rounds < callersRounds && l.unread > roomy; left {
			go func() {
				l.c.mu.Lock()
				l.write(1 << 30)
			}()
			break
		}
		b := l.out
		l.out, l.spare, l.wrote = l.spare[:0], nil, time.Now()
		l.c.mu.Unlock()
		l.c.opt.Counters.BytesSent.Add(uint64(len(b))) // before Write: a caller with its answer finds it counted
		_, err := l.conn.Write(b)
		l.c.mu.Lock()
		if cap(b) <= 64<<10 {
			l.spare = b
		}
		if err != nil {
			l.out = nil
			l.close() // the reader sees the closed connection
			break
		}
	}
	if !left {
		l.writing = false
	}
	l.c.mu.Unlock()
}

// ping() sends a ping whenever the link sent nothing for a third of the timeout, until the link is gone. The
// server must hear from the client within the timeout, and the client must hear from the server within two
// thirds of it.
func (l *link) ping() {
	idle := l.silent / 2
	t := time.NewTimer(idle)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.gone:
			return
		}
		l.c.mu.Lock()
		left := idle - time.Since(l.wrote)
		if left > 0 {
			l.c.mu.Unlock()
			t.Reset(left)
			continue
		}
		b, _ := jute.BeginFrame(l.out)
		b = jute.AppendInt(jute.AppendInt(b, jute.XidPing), int32(jute.OpPing))
		jute.EndFrame(b, len(l.out))
		l.out = b
		l.wrote = time.Now()
		l.flush()
		t.Reset(idle)
	}
}

// read() takes answers and events until the connection ends. It runs in the goroutine of the Conn, the only
// one that delivers answers and events, so that they stay in order.
func (l *link) read() error {
	bad, err := l.answers()
	l.useful = l.useful && !bad
	return err
}

// answers() takes answers and events until one is bad or the connection ends.
func (l *link) answers() (bad bool, err error) {
	var head [4 + jute.ReplyHeaderSize]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(l.br, head[:]); err != nil {
			return false, err
		}
		size := int(int32(binary.BigEndian.Uint32(head[:]))) - jute.ReplyHeaderSize
		if size < 0 || size > maxFrame {
			return true, fmt.Errorf("zk: invalid length of an answer: %d bytes", size+jute.ReplyHeaderSize)
		}
		l.c.opt.Counters.BytesRead.Add(uint64(size + len(head)))
		d := jute.NewDecoder(head[4:])
		xid, zxid, code := d.Int(), d.Long(), jute.ErrCode(d.Int())
		r, err := l.match(xid, zxid)
		if err != nil {
			return true, err
		}
		own := r != nil && r.inner
		var body []byte
		if r != nil && r.keep {
			body = listMemory(size)
		} else {
			if cap(buf) < size || cap(buf) > 64<<10 && size < 32<<10 {
				buf = make([]byte, max(size, 512))
			}
			body = buf[:size]
		}
		if _, err := io.ReadFull(l.br, body); err != nil {
			return false, err
		}
		d = jute.NewDecoder(body)
		switch {
		case r != nil:
			if err := l.answer(r, code, &d); err != nil {
				return true, err
			}
		case xid == jute.XidEvent:
			if err := l.event(&d); err != nil {
				return true, err
			}
		}
		l.useful = l.useful || !own // answers to the Conn's own requests do not count
		jute.Overwrite(buf)         // buf may be used again: an answer that is kept has memory of its own
	}
}

// maxFrame is the longest answer that the Conn accepts.
const maxFrame = 1 << 30

// match() finds the call to which an answer belongs: the first unanswered call. Only answers about identities
// may come before their turn. Events and pings have no call.
func (l *link) match(xid int32, zxid int64) (*call, error) {
	if xid == jute.XidEvent || xid == jute.XidPing {
		return nil, nil
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, r := range l.pending {
		if int32(binary.BigEndian.Uint32(r.frame[4:])) == xid {
			if zxid > l.c.zxid {
				l.c.zxid = zxid
			}
			return r, nil
		}
		if xid != jute.XidAuth {
			break
		}
	}
	if l.c.err != nil {
		return nil, l.c.err // the pending calls have ended with the session
	}
	return nil, errOrder
}

// take() removes a call that has its answer. Until then the call is pending, so that it ends with the
// connection or the session. c.mu is held.
func (l *link) take(r *call) {
	if i := slices.Index(l.pending, r); i >= 0 {
		copy(l.pending[1:i+1], l.pending[:i])
		l.pending[0] = nil
		l.pending = l.pending[1:]
		l.unread -= len(r.frame)
	}
}

// answer() ends a call with its answer.
func (l *link) answer(r *call, code jute.ErrCode, d *jute.Decoder) error {
	c := l.c
	missing := r.absent && code == jute.NoNode
	var err error
	switch {
	case code == jute.OK && r.parse != nil:
		r.parse(d)
		if d.Err() != nil {
			return fmt.Errorf("zk: answer to %s %s: %w", r.op, r.path, d.Err())
		}
		err = r.refused
	case code == jute.OK, missing:
	case code == jute.SessionExpired, code == jute.UnknownSession, code == sessionMoved:
		// Do not end the session yet: the handshake of the next connection shows whether it has expired.
		return &Error{Op: r.op.String(), Path: r.path, Code: code}
	case r.op == jute.OpAuth:
		c.end(ErrAuthFailed, Expired)
		err = &Error{Op: r.op.String(), Path: r.path, Code: jute.AuthFailed}
	default:
		err = &Error{Op: r.op.String(), Path: r.path, Code: code}
		if brokeOnTheWay(code) {
			if r.repeat && c.resend(l, r) {
				return nil
			}
			err = &uncertain{err}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take(r)
	if code == jute.NoNode && r.target != "" {
		c.watches.absent(r.target, Event{EventDeleted, c.root.own(r.target)})
	}
	if r.arms && err == nil && r.stage != over {
		c.watches.arm(r, missing)
	}
	r.finish(err)
	return nil
}

const sessionMoved = jute.ErrCode(-118)

// event() fires the watches that an event concerns.
func (l *link) event(d *jute.Decoder) error {
	full, ev, err := l.c.eventOf(d)
	if err != nil {
		return fmt.Errorf("zk: event: %w", err)
	}
	l.c.opt.Counters.Events.Add(1)
	l.c.mu.Lock()
	l.c.watches.fire(full, ev)
	l.c.mu.Unlock()
	return nil
}
