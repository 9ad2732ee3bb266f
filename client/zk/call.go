package zk

import (
	"encoding/binary"

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
	inner  bool   // made by the Conn itself, for one connection
	repeat bool   // the request may run twice, so it is sent again after a connection is lost
	keep   bool   // parse keeps the memory of the answer, which is a list
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
	tries int  // how often the request has failed between two servers
}

// begin makes the frame of a call, up to and including its path.
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

// finish ends the call, unless it is over. Conn.mu is held.
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
