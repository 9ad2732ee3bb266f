package observe

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Request is one request of a client, from its arrival to its answer.
type Request struct {
	Op      jute.OpCode // state.OpCreateSession and state.OpAttach for a connect request, which has no Body
	Xid     int32
	Body    []byte // as the client sent it
	Session int64  // 0: none, as of a connect request that was refused
	Addr    string // the client's, without its port
	IDs     []jute.ID

	state.Outcome // the answer, or why there was none

	// When the last byte of the request had come, when the server began to carry it out (until then it
	// waits for other requests of its connection, and for the share of its address), and when its answer
	// was appended, on the server's clock. In between a write is Logged: a majority has it in its log, and
	// the server applies the entry. Logged is zero for requests that the server answers by itself.
	Arrived, Begun, Logged, Answered time.Duration
}

// stages are the parts of a request's time, in the order in which they pass.
var stages = [...]string{"waited", "logged", "applied", "carried_out"}

// stages returns how long each stage took. A write is logged and applied; other requests are
// carried out.
func (r *Request) stages() (took [len(stages)]time.Duration) {
	took[0] = r.Begun - r.Arrived
	if r.Logged > 0 {
		took[1], took[2] = r.Logged-r.Begun, r.Answered-r.Logged
	} else {
		took[3] = r.Answered - r.Begun
	}
	return took
}

// Path returns the path that the request names; "" if it names none, or several.
func (r *Request) Path() string { return pathOf(r.Op, r.Body) }

// pathOf returns the path that a request names; "" if it names none, or several.
func pathOf(op jute.OpCode, body []byte) string {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpExists,
		jute.OpGetData, jute.OpSetData, jute.OpGetACL, jute.OpSetACL, jute.OpGetChildren, jute.OpGetChildren2,
		jute.OpSync:
		d := jute.NewDecoder(body)
		if path, ok := d.String(); ok && d.Err() == nil {
			return path
		}
	}
	return ""
}
