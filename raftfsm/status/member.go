package status

import (
	"maps"
	"slices"
	"time"
)

// Member is one server of the cluster, as the leader describes it. While no server leads, the server that was
// asked describes it.
type Member struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`   // the member's address for other servers
	Client string `json:"client"` // the member's address for clients; empty: not known yet
	Voter  bool   `json:"voter"`
	Progress
}

// Progress describes how far a member has applied the log.
type Progress struct {
	Applied  uint64 `json:"applied"`   // index of the newest log entry that the member has applied
	Lag      uint64 `json:"lag"`       // how many entries the member lags behind the leader
	LagBytes *int64 `json:"lag_bytes"` // how many bytes the member lags behind the leader; nil: not known
	Heard    *int64 `json:"heard_ms"`  // ms since the member was last heard from; nil: it is not heard from
	Version  string `json:"version"`   // version of the member's program; empty: not known
	Starts   uint64 `json:"starts"`    // how often the member's data directory was started

	SnapshotSent int64  `json:"snapshot_sent"` // how many bytes of a snapshot are already sent to the member
	SnapshotSize int64  `json:"snapshot_size"`
	Waits        string `json:"waits"` // what the member waits for, or why it is not heard from
}

// A server that lags behind by no more than these limits may get a vote or the leadership, and counts as
// following. The bytes are limited too, because entries may be large.
const (
	EnoughToVote  = 1000     // how many log entries the server may lag behind
	EnoughOfBytes = 16 << 20 // how many bytes of log entries the server may lag behind
)

// Silence is how long a member may be silent and still count as reached. A running member sends a message
// several times a second. An open connection does not count: the connection to a server that hangs, or whose
// network is cut, may stay open for a long time.
const Silence = 5 * time.Second

// Reached reports whether the member is heard from.
func (p *Progress) Reached() bool { return p.Heard != nil && *p.Heard < Silence.Milliseconds() }

// Follows reports whether the member runs and lacks only the newest part of the log. A server that lost its
// directory also answers, but it has applied nothing.
func (p *Progress) Follows() bool {
	return p.Reached() && p.Applied > 0 && p.Lag <= EnoughToVote &&
		(p.LagBytes == nil || *p.LagBytes <= EnoughOfBytes)
}

// Well reports whether the member runs, serves clients and has caught up.
func (p *Progress) Well() bool { return p.Reached() && p.Lag <= EnoughToVote && p.Waits == "" }

// Found is the server that answers at an address.
type Found struct {
	Progress
	At    string `json:"at"`    // the address that the server gives as its own
	Known bool   `json:"known"` // whether the server's data directory is that of the member
}

// Members is the answer to GET /members.
type Members struct {
	V       int               `json:"v"`
	ID      uint32            `json:"id"`               // id of the server that answers
	Leader  uint32            `json:"leader"`           // id of the leader; 0: none is known
	Reason  string            `json:"reason,omitempty"` // why the server that answers does not serve clients
	Cluster string            `json:"cluster"`
	Members map[uint32]Member `json:"members"` // by id
}

// List returns the members in the order of their ids.
func (m *Members) List() []Member {
	list := make([]Member, 0, len(m.Members))
	for _, id := range slices.Sorted(maps.Keys(m.Members)) {
		list = append(list, m.Members[id])
	}
	return list
}

// Ago returns a value for Progress.Heard.
func Ago(ms int64) *int64 { return &ms }
