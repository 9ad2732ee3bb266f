package change

import "github.com/zlockd/zlockd/raftfsm/status"

// Job is an operator's change of one member: the body of POST /members.
type Job struct {
	Op   Op     `json:"op"`
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"` // the server's address for other servers

	// Wait asks the server to do the whole job, and to report its steps until the job is done. Without Wait
	// the server makes one change and answers at once.
	Wait bool `json:"wait,omitempty"`
	// NoVote: the added server follows without a vote.
	NoVote bool `json:"no_vote,omitempty"`
	// Patience is how many ms a job may make no progress before it ends.
	Patience int64 `json:"patience_ms,omitempty"`
	// Again says that the answer to an earlier, equal job was lost, so the job may be done already.
	Again bool `json:"again,omitempty"`
}

// Step is one line of the answer to a job.
type Step struct {
	// Kind names lines that replace each other: this line replaces the previous line of the same kind. A line
	// without a kind replaces nothing.
	Kind string `json:"kind,omitempty"`
	Text string `json:"text,omitempty"`
	Done bool   `json:"done,omitempty"` // this is the last line; the job is done unless there is an error
	// Rest, if not nil, is the part of the job that is still to do. If the connection ends, the client sends
	// it as a new job.
	Rest *Job `json:"rest,omitempty"`
	status.Failure
}
