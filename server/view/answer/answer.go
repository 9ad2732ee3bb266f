// Package answer has the rows of the lock view's answers, as the server writes them and zlock reads
// them. Times are milliseconds since 1970 by the leader's clock.
package answer

import "github.com/zlockd/zlockd/client/recipe"

// Stale is the header of an answer from a server that does not serve clients. The answer may be out of date.
// The header's value is the reason.
const Stale = "Zlockd-Stale"

// Lock is a lock in the list of locks.
type Lock struct {
	recipe.Lock
	Href   string `json:"href"`
	Recipe string `json:"recipe"`

	HolderCount      int   `json:"holderCount"`
	WaiterCount      int   `json:"waiterCount"`
	ParticipantCount int   `json:"participantCount"`
	OldestWait       int64 `json:"oldestWait"` // 0: no contender waits
	HeldSince        int64 `json:"heldSince"`  // 0: no contender holds it
}

// Session is a session in the list of sessions.
type Session struct {
	ID        string `json:"id"`
	Addr      string `json:"addr"`   // address of the session's client
	Server    uint32 `json:"server"` // the server of the session's newest connection
	TimeoutMS int32  `json:"timeoutMs"`
	Created   int64  `json:"created"`
	Nodes     int    `json:"nodes"` // number of the session's ephemeral nodes
	Connected bool   `json:"connected"`
	Conn      *Conn  `json:"connection,omitempty"` // nil unless the client is connected to this server
}

// Conn describes a client's connection to this server.
type Conn struct {
	Addr        string  `json:"addr"`
	Secure      bool    `json:"tls,omitempty"`
	Since       int64   `json:"since"`
	Queued      int64   `json:"queued"`
	Received    int64   `json:"received"`
	Sent        int64   `json:"sent"`
	BytesIn     int64   `json:"bytesIn"`
	BytesOut    int64   `json:"bytesOut"`
	LastOp      string  `json:"lastOp,omitempty"`
	AvgMS       float64 `json:"avgMs"`
	MaxMS       int64   `json:"maxMs"`
	ExpiresInMS int64   `json:"silenceLeftMs"` // how much longer the client may be silent
}

// OneSession is the answer about one session.
type OneSession struct {
	V int `json:"v"`
	Session
	Watches   int      `json:"watches"`
	Holds     []Role   `json:"holds"`
	WaitsFor  []Role   `json:"waitsFor"`
	Paths     []string `json:"paths"`            // some of the session's ephemeral nodes
	Hidden    int      `json:"hidden,omitempty"` // number of nodes that not every client may list
	Truncated string   `json:"truncated,omitempty"`
}

// Role is a contender that belongs to a session.
type Role struct {
	Path  string      `json:"path"`
	Href  string      `json:"href"`
	Kind  recipe.Kind `json:"kind"`
	Node  string      `json:"node"`
	Mode  recipe.Mode `json:"mode"`
	Token string      `json:"token"`
	Since int64       `json:"since"`
}

// Ended is an ended session.
type Ended struct {
	ID        string   `json:"id"`
	Time      int64    `json:"time"`
	Reason    string   `json:"reason"`
	Cause     string   `json:"cause"` // closed, expired or operator
	Addr      string   `json:"addr,omitempty"`
	Server    uint32   `json:"server,omitempty"` // the server to which the session was last connected
	TimeoutMS int64    `json:"timeoutMs,omitempty"`
	Zxid      string   `json:"zxid"`
	Nodes     int      `json:"nodes"`
	Paths     []string `json:"paths"`
	Hidden    int      `json:"hidden,omitempty"` // number of paths that not every client could have listed
}

// Top lists the clients that send and receive most, as the counters of their connections show.
type Top struct {
	V int `json:"v"`
	// Seconds is the time over which requests and bytes are counted.
	Seconds   float64 `json:"seconds"`
	Note      string  `json:"note"`
	Clients   []Busy  `json:"clients"`          // one for each address
	Watched   []Busy  `json:"watched"`          // paths, with the number of their watches
	Hidden    int     `json:"hidden,omitempty"` // number of paths that Watched leaves out
	Truncated string  `json:"truncated,omitempty"`
}

// Busy is a client or a path, with its counts.
type Busy struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Bytes    int64  `json:"bytes"`
	Watches  int    `json:"watches"`
}

// Done is the answer to an action.
type Done struct {
	V      int    `json:"v"`
	Action string `json:"action"`
	DryRun bool   `json:"dryRun,omitempty"`
	Does   string `json:"does"` // the change that was made, or would be made
	Hits   []Hit  `json:"hits"`
}

// Hit describes clients that an action concerns.
type Hit struct {
	Session string `json:"session"`
	Addr    string `json:"addr,omitempty"`
	Host    string `json:"host,omitempty"`
	What    string `json:"what"`
}
