package status

import (
	"maps"
	"slices"
	"time"
)

// Member is one server of the cluster, as the leader describes it. Where no server leads, the
// server that was asked describes it.
type Member struct {
	ID     uint32 `json:"id"`
	Peer   string `json:"peer"`   // address for other servers
	Client string `json:"client"` // address for clients; empty: not known yet
	Voter  bool   `json:"voter"`
	Progress
}

// Progress describes how far a member has applied the log.
type Progress struct {
	Applied  uint64 `json:"applied"`   // the newest log entry that it has applied
	Lag      uint64 `json:"lag"`       // entries behind the leader
	LagBytes *int64 `json:"lag_bytes"` // bytes of these; nil: not known
	Heard    *int64 `json:"heard_ms"`  // ms since it was heard from; nil: it is not heard
	Version  string `json:"version"`   // of its program; empty: not known
	Starts   uint64 `json:"starts"`    // how often its data directory was started

	SnapshotSent int64  `json:"snapshot_sent"` // bytes of a snapshot that is being sent to it
	SnapshotSize int64  `json:"snapshot_size"`
	Waits        string `json:"waits"` // what it waits for, or why it is not heard
}

// The lag up to which a server may get a vote or the leadership, and counts as following. It is bounded in
// bytes too, because entries may be large.
const (
	EnoughToVote  = 1000     // log entries
	EnoughOfBytes = 16 << 20 // bytes of them
)

// Silence is how long a silent member still counts as reached. A member that runs sends a message several
// times a second. The connection to a server that hangs, or whose network is cut, may stay open for long.
const Silence = 5 * time.Second

// Reached reports whether the member is heard from.
func (p *Progress) Reached() bool { return p.Heard != nil && *p.Heard < Silence.Milliseconds() }

// Follows reports whether the member runs and has all but the newest part of the log. A server that lost its
// directory also answers, but has applied nothing.
func (p *Progress) Follows() bool {
	return p.Reached() && p.Applied > 0 && p.Lag <= EnoughToVote &&
		(p.LagBytes == nil || *p.LagBytes <= EnoughOfBytes)
}

// Well reports whether the member runs, serves clients and has caught up.
func (p *Progress) Well() bool { return p.Reached() && p.Lag <= EnoughToVote && p.Waits == "" }

// Found is the server that answers at an address.
type Found struct {
	Progress
	At    string `json:"at"`    // the address that the server reports of itself
	Known bool   `json:"known"` // its data directory is the one that the member has
}

// Members is the answer to GET /members.
type Members struct {
	V       int               `json:"v"`
	ID      uint32            `json:"id"`               // the server that answers
	Leader  uint32            `json:"leader"`           // 0: none is known
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

// Ago is a time since a member was heard from, in ms.
func Ago(ms int64) *int64 { return &ms }

// Job is a change of one member: the body of POST /members.
type Job struct {
	Op   string `json:"op"` // add, promote, replace, lead, move or remove; or check, which changes nothing
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"` // for other servers

	// Wait asks for the whole job, and for steps until it is done; without it the server makes one change and
	// answers at once.
	Wait bool `json:"wait,omitempty"`
	// NoVote lets a server that is added follow without a vote.
	NoVote bool `json:"no_vote,omitempty"`
	// Patience ends a job that makes no progress for so many ms.
	Patience int64 `json:"patience_ms,omitempty"`
	// Again says that the answer to the same job was lost: what it asks for may be
	// done already.
	Again bool `json:"again,omitempty"`
}

// Step is a line of the answer to a job.
type Step struct {
	Kind string `json:"kind,omitempty"` // replaces the step before of the same kind; empty: stays
	Text string `json:"text,omitempty"`
	Done bool   `json:"done,omitempty"` // this is the last line; without an error the job is done
	// Rest, if there is one, is the job that goes on from here when the connection ends.
	Rest *Job `json:"rest,omitempty"`
	Failure
}
