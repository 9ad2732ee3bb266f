// Package ends has the reasons why connections of clients end, and a log of clients that bounds the number of
// its lines.
package ends

import (
	"errors"
	"net"
	"os"
)

// Reason says why a connection ended.
type Reason uint8

const (
	None      Reason = iota // the connection has not ended
	Else                    // the reason is recorded elsewhere
	Client                  // the client or the network closed the connection
	Session                 // the client closed its session
	Word                    // the connection's four-letter word or HTTP request was answered
	Gone                    // the session has ended, or never existed
	Moved                   // the session has a newer connection
	Handshake               // the connection got no session in time
	Idle                    // no byte for longer than the session's timeout
	Stalled                 // the client began a frame and did not finish it
	Length                  // a frame of impossible length
	Malformed               // a malformed frame
	Slow                    // the client did not read its answers and events
	Watches                 // too many watches
	Events                  // the events for its address cost too much
	Sessions                // too many sessions
	Auth                    // authentication failed
	UnknownOp               // an operation that does not exist
	Unknown                 // the outcome of a request is unknown
	Serving                 // this server does not serve clients
	Behind                  // the client has seen a newer state than this server's
	CutOff                  // this server may not answer a ping, because the leader does not hear this server
	Stopped                 // this server stops
	Plain                   // the client speaks another protocol: TLS or HTTP
	TLS                     // the TLS handshake failed
	Panic                   // the server panicked, because of a defect
	Reasons                 // number of reasons
)

var names = [Reasons]string{
	"", "", "closed by the client", "session closed by the client", "answered", "session ended",
	"session moved", "no session in time", "silent", "frame not finished", "impossible frame length",
	"malformed frame", "did not read", "too many watches", "too many events", "too many sessions",
	"authentication failed",
	"unknown operation",
	"outcome unknown", "server not serving", "server is behind the client", "server cut off from the leader",
	"server stopping", "not the ZooKeeper protocol", "TLS handshake failed", "internal error",
}

func (r Reason) String() string { return names[r] }

// Ours reports whether the server ended the connection because of the client's behaviour.
func (r Reason) Ours() bool {
	switch r {
	case Idle, Stalled, Length, Malformed, Slow, Watches, Events, Auth, UnknownOp,
		Plain, TLS:
		return true
	}
	return false
}

// OfWrite returns the end reason of a failed write.
func OfWrite(err error) Reason {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Slow
	}
	if errors.Is(err, net.ErrClosed) {
		return Else
	}
	return Client
}
