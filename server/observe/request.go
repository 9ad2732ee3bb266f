package observe

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Request is one request of a client, from its arrival to its answer.
type Request struct {
	Op      jute.OpCode // OpCreateSession or OpAttach for a connect request, whose body is left out
	Xid     int32
	Body    []byte // as the client sent it
	Session int64  // 0: no session, for example for a refused connect request
	Addr    string // the client's address, without its port
	IDs     []jute.ID

	state.Outcome // what the client was answered, or why it got no answer

	// When the request came to each stage, on the server's clock:
	//   - Arrived: its last byte has come.
	//   - Begun: it has waited for earlier requests and for the share of its address.
	//   - Logged: a majority has it in its log. 0 if it needs no log entry.
	//   - Answered: the answer is in the outbox.
	Arrived, Begun, Logged, Answered time.Duration
}

// stages are the names of the parts of a request's time, in order.
var stages = [...]string{"waited", "logged", "applied", "carried_out"}

// stages returns how long each stage took. A request that goes through the log has `logged` and `applied`;
// any other has `carried_out` instead.
func (r *Request) stages() (took [len(stages)]time.Duration) {
	took[0] = r.Begun - r.Arrived
	if r.Logged > 0 {
		took[1], took[2] = r.Logged-r.Begun, r.Answered-r.Logged
	} else {
		took[3] = r.Answered - r.Begun
	}
	return took
}

// Path returns the path that the request names. It returns "" if the request names no path or several.
func (r *Request) Path() string { return pathOf(r.Op, r.Body) }

// pathOf returns the path that a request names. It returns "" if the request names no path or several.
func pathOf(op jute.OpCode, body []byte) string {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpExists,
		jute.OpGetData, jute.OpSetData, jute.OpGetACL, jute.OpSetACL, jute.OpGetChildren, jute.OpGetChildren2,
		jute.OpSync, jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches, jute.OpGetEphemerals,
		jute.OpGetAllChildrenNumber:
		d := jute.NewDecoder(body)
		if path, ok := d.String(); ok && d.Err() == nil {
			return path
		}
	}
	return ""
}
