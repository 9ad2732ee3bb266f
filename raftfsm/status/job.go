package status

// Job is a change of one member: the body of POST /members.
type Job struct {
	Op   string `json:"op"` // add, promote, replace, lead, move or remove; or check, which changes nothing
	ID   uint32 `json:"id"`
	Addr string `json:"addr,omitempty"` // for other servers

	// Wait asks for the whole job, and for steps until it is done; without it the
	// server makes one change and answers.
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
	Kind string `json:"kind,omitempty"` // a step replaces the one before of the same kind; empty: it stays
	Text string `json:"text,omitempty"`
	Done bool   `json:"done,omitempty"` // this is the last line; without an error the job is done
	Failure
}
