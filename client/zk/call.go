package zk

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// stage is the progress of a call.
type stage uint8

const (
	waiting stage = iota // the call waits for a connection
	sent                 // the present connection has sent the call, and its answer has not arrived
	over                 // done is closed
)

// call is one request and its outcome.
type call struct {
	op     jute.OpCode
	path   string // path as the caller named it
	frame  []byte // the whole frame; the xid is filled in when it is sent
	xid    int32  // 0: the call gets a new xid each time it is sent
	inner  bool   // the Conn made this request itself; on another connection it is useless
	repeat bool   // the request may run twice, so it is sent again after a connection is lost
	keep   bool   // parse keeps the memory of the answer: no later answer may use it
	absent bool   // NoNode counts as an answer, not as an error
	// parse reads the body of a good answer. It runs in the goroutine of the connection.
	parse   func(d *jute.Decoder)
	refused error // set by parse if the body of the answer has an error and the header has none
	// settled, if not nil, runs before done is closed, with Conn.mu held.
	settled func(err error)

	arms   bool // a good answer sets a watch
	kind   watchKind
	target string // the watched path from the server's root
	watch  *Watch // set before done is closed

	done chan struct{}
	err  error // valid when done is closed

	// Conn.mu guards the fields below.
	stage stage
	left  bool // the caller no longer waits for the call
	tries int  // how often the call failed on the way from its server to another; the pauses grow with it
}

// begin() begins the frame of a call: the length, the xid and the operation. The caller appends the rest.
func (r *call) begin(op jute.OpCode, path string, size int) []byte {
	r.op, r.path, r.done = op, path, make(chan struct{})
	b, _ := jute.BeginFrame(make([]byte, 0, size+20))
	b = jute.AppendInt(b, 0)
	return jute.AppendInt(b, int32(op))
}

func (r *call) end(b []byte) {
	jute.EndFrame(b, 0)
	r.frame = b
}

// stamp() writes the xid into the frame.
func (r *call) stamp(xid int32) { binary.BigEndian.PutUint32(r.frame[4:], uint32(xid)) }

// finish() ends the call, unless it is over. Conn.mu is held.
func (r *call) finish(err error) {
	if r.stage == over {
		return
	}
	r.stage, r.err = over, err
	if r.settled != nil {
		r.settled(err)
	}
	close(r.done)
}

// submit() sends calls one after the other, or queues them until there is a connection. If `soon` is true, it
// may send the calls a moment later, together with calls that follow.
func (c *Conn) submit(soon bool, calls ...*call) {
	c.mu.Lock()
	for _, r := range calls {
		if err := c.fits(r); err != nil {
			c.refuse(calls, err)
			return
		}
	}
	c.put(soon, calls...)
}

// fits() returns an error if the request of a call is too long.
func (c *Conn) fits(r *call) error {
	if size := len(r.frame) - 4; size > c.opt.MaxRequest {
		return fmt.Errorf("%w: %s %s, %d bytes", ErrTooLarge, r.op, r.path, size)
	}
	return nil
}

// put() does the work of submit. It is called with c.mu held, and unlocks c.mu.
func (c *Conn) put(soon bool, calls ...*call) {
	switch {
	case c.err != nil:
		c.refuse(calls, c.err)
	case c.closing:
		c.refuse(calls, ErrClosed)
	case c.link == nil:
		c.queue = append(c.queue, calls...)
		c.mu.Unlock()
	default:
		for _, r := range calls {
			c.link.put(r)
		}
		if soon {
			c.link.flushSoon() // unlocks c.mu
		} else {
			c.link.flush() // unlocks c.mu
		}
	}
}

// refuse() ends calls that wait for a connection. It is called with c.mu held and unlocks it.
func (c *Conn) refuse(calls []*call, err error) {
	for _, r := range calls {
		r.finish(err)
	}
	c.mu.Unlock()
}

// leave() gives up a call because ctx has ended. It returns nil if the call was over already.
func (c *Conn) leave(ctx context.Context, r *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.left = true
	switch {
	case r.stage == over:
		return nil
	case r.stage == waiting:
		c.queue = slices.DeleteFunc(c.queue, func(x *call) bool { return x == r })
		r.finish(ctx.Err())
	case !r.repeat:
		return &uncertain{ctx.Err()}
	}
	return ctx.Err()
}

// AddAuth presents one more identity, now and on every later connection. If the server refuses it,
// the session ends with ErrAuthFailed.
func (c *Conn) AddAuth(ctx context.Context, a Auth) error {
	r := &Reply[struct{}]{call: *authCall(a), c: c}
	if err := c.fits(&r.call); err != nil {
		return err // do not keep it: every later connection would present it, and be closed by the server
	}
	c.mu.Lock()
	c.auth = append(c.auth, a)
	c.mu.Unlock()
	return errOf(do(ctx, c, r))
}

func errOf[T any](_ T, err error) error { return err }

// authCall returns the call that presents an identity. The answer to the call may arrive before earlier
// answers.
func authCall(a Auth) *call {
	r := &call{}
	b := r.begin(jute.OpAuth, a.Scheme, len(a.Scheme)+len(a.Secret)+12)
	b = jute.AppendString(jute.AppendInt(b, 0), a.Scheme)
	r.end(jute.AppendString(b, string(a.Secret))) // an empty secret is sent as empty bytes, not as null
	r.xid, r.repeat = jute.XidAuth, true
	return r
}
