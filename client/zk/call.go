package zk

import (
	"context"
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// stage is how far a call is.
type stage uint8

const (
	waiting stage = iota // for a connection
	sent                 // on the present connection, unanswered
	over                 // done is closed
)

// call is one request and its outcome.
type call struct {
	op     jute.OpCode
	path   string // as the caller named it
	frame  []byte // the whole frame; the xid is filled in when it is sent
	xid    int32  // 0: a fresh one each time
	inner  bool   // made for one connection
	repeat bool   // harmless if done twice: sent again after a lost connection
	keep   bool   // parse keeps the memory it is given, that of a list
	absent bool   // "no node" is an answer, not an error
	// parse reads the body of a good answer, in the goroutine of the connection.
	parse   func(d *jute.Decoder)
	refused error // set by parse: the header has no error, but the body has
	// settled, if not nil, runs in the goroutine of the connection before done is closed.
	settled func(err error)

	arms   bool // a watch, if the answer is good
	kind   watchKind
	target string // the watched path, as the server knows it
	watch  *Watch // set before done is closed

	done chan struct{}
	err  error // valid when done is closed

	// Guarded by Conn.mu.
	stage stage
	left  bool // the caller no longer waits
	tries int  // that failed between servers
}

// begin makes the frame of a call up to its path.
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

// stamp writes the xid into the frame.
func (r *call) stamp(xid int32) { binary.BigEndian.PutUint32(r.frame[4:], uint32(xid)) }

// finish ends the call. It is called once.
func (r *call) finish(err error) {
	r.err = err
	if r.settled != nil {
		r.settled(err)
	}
	close(r.done)
}

// Reply is the answer to a request of a [Pipe], present or future.
type Reply[T any] struct {
	call
	c *Conn
	v T
}

// Done returns a channel that closes when the answer is there, or certainly never comes.
func (r *Reply[T]) Done() <-chan struct{} { return r.done }

// Wait returns the answer, or the error of ctx if ctx ends first. Then the Conn withdraws a request
// that it has not sent yet; for a request that it has sent, the error is ErrUncertain, unless the
// request only reads. A caller may call Wait again to learn the outcome.
func (r *Reply[T]) Wait(ctx context.Context) (T, error) {
	var none T
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			if err := r.c.leave(ctx, &r.call); err != nil {
				return none, err
			}
		}
	}
	if r.err != nil {
		return none, r.err
	}
	return r.v, nil
}

// Watch returns the watch that a read set, once Wait has returned without an error.
func (r *Reply[T]) Watch() *Watch { return r.watch }

// Pipe collects requests for one flight: the Conn sends them on one connection, one behind the
// other with nothing between them, and the server answers them in that order. If the connection is
// lost, the Conn repeats reads, and writes fail with ErrConnectionLost.
type Pipe struct {
	c     *Conn
	calls []*call
}

// Pipe returns an empty Pipe.
func (c *Conn) Pipe() *Pipe { return &Pipe{c: c} }

// Send sends the collected requests. It does not wait: without a connection the Conn sends them as
// soon as there is one.
func (p *Pipe) Send() {
	p.c.submit(false, p.calls...)
	p.calls = nil
}

// SendSoon is Send for requests without a waiting caller. If another request follows at once, both
// leave together, and the server may do both in one step.
func (p *Pipe) SendSoon() {
	p.c.submit(true, p.calls...)
	p.calls = nil
}

func add[T any](p *Pipe, r *Reply[T]) *Reply[T] {
	r.c = p.c
	p.calls = append(p.calls, &r.call)
	return r
}

// do sends one request and waits for its answer.
func do[T any](ctx context.Context, c *Conn, r *Reply[T]) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	r.c = c
	c.submit(false, &r.call)
	return r.Wait(ctx)
}
