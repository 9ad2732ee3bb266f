package request

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/bounds"
)

// What a request costs besides the steps of its outcome.
const (
	WriteSteps   = 5   // cost of a write's share of a log entry
	DecodeBytes  = 100 // bytes of a write that cost one step to decode, even if the write fails
	SessionSteps = 30  // cost to create or attach a session; a refused session costs the same
	PlainSteps   = 5   // cost of a request answered without the state: ping, identities, refused operations

	// HandshakeSteps is the cost of a TLS handshake. The handshake takes no lock, but it takes a millisecond of
	// processor time.
	HandshakeSteps = 10_000
	ReconfigSteps  = bounds.MaxSteps / 2 // a reconfig asks all servers
)

// TakesLong reports whether an operation may take long to compute even if its answer is short. Only
// getEphemerals may: it visits all ephemeral nodes of a session, and its answer has those below one path.
func TakesLong(op jute.OpCode) bool { return op == jute.OpGetEphemerals }

// ReadCost estimates the cost of a read from the length of its path: a level has at least two bytes and costs
// a quarter of a step. The real cost replaces the estimate when the read is answered.
func ReadCost(body []byte) int64 { return int64(2 + len(body)/6) }

// WriteCost estimates the cost of a write from its length. The cost of the outcome later replaces the
// estimate.
func WriteCost(op jute.OpCode, body []byte) int64 {
	switch {
	case op == jute.OpMulti:
		return min(bounds.MaxSteps, int64(2*len(body)))
	case len(body) > 1<<10:
		return WriteSteps + int64(len(body)/8)
	}
	return 4 * WriteSteps
}
