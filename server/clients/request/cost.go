package request

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/bounds"
)

// The cost of requests in addition to the steps of their outcomes.
const (
	WriteSteps   = 5   // cost of a write's share of a log entry
	DecodeBytes  = 100 // bytes of a write that cost one step to decode, even if the write fails
	SessionSteps = 30  // cost to create or attach a session, also if the server refuses
	PlainSteps   = 5   // cost of a request answered without the state: ping, identities, refused operations

	// HandshakeSteps is the cost of a TLS handshake. The handshake takes no lock, but it takes a millisecond of
	// processor time.
	HandshakeSteps = 10_000
	ReconfigSteps  = bounds.MaxSteps / 2 // a reconfig asks all servers
)

// TakesLong reports whether even a short answer may take long to compute: getEphemerals visits all nodes of
// its session.
func TakesLong(op jute.OpCode) bool { return op == jute.OpGetEphemerals }

// ReadCost estimates the cost of a read from its length, because each level of a path has at least two bytes
// and costs a quarter of a step. The real cost later replaces the estimate.
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
