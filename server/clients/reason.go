package clients

// endReason says why a connection ended.
type endReason uint8

const (
	endNone      endReason = iota // it has not
	endElse                       // the reason was given elsewhere
	endClient                     // the client closed it, or the network did
	endSession                    // the client closed its session
	endWord                       // its four-letter word, or HTTP request, was answered
	endGone                       // the session ended, or was never there
	endMoved                      // the session has a newer connection
	endHandshake                  // no session in time
	endIdle                       // no byte for longer than the session's timeout
	endStalled                    // a frame was begun and not finished
	endLength                     // a frame of impossible length
	endMalformed                  // a malformed frame
	endSlow                       // it did not take what it was sent
	endWatches                    // too many watches
	endEvents                     // its address watches more than it may cost
	endAuth                       // authentication failed
	endUnknownOp                  // an operation that does not exist
	endUnknown                    // the outcome of a request is not known
	endServing                    // this server does not serve clients
	endBehind                     // the client has seen more than this server
	endCutOff                     // this server may not answer a ping
	endStopped                    // this server stops
	endPlain                      // something else spoke here: TLS, HTTP
	endTLS                        // the TLS handshake failed
	endPanic                      // a defect
	endReasons                    // how many there are
)

var endNames = [endReasons]string{
	"", "", "closed by the client", "session closed by the client", "answered", "session ended",
	"session moved", "no session in time", "silent", "frame not finished", "impossible frame length",
	"malformed frame", "did not read", "too many watches", "too many events", "authentication failed",
	"unknown operation",
	"outcome unknown", "server not serving", "server is behind the client", "server cut off from the leader",
	"server stopping", "not the ZooKeeper protocol", "TLS handshake failed", "internal error",
}

func (r endReason) String() string { return endNames[r] }

// ours reports whether the server ended the connection over something the
// client did.
func (r endReason) ours() bool {
	switch r {
	case endIdle, endStalled, endLength, endMalformed, endSlow, endWatches, endEvents, endAuth, endUnknownOp,
		endPlain, endTLS:
		return true
	}
	return false
}
