package signal

import (
	"context"
	"runtime/trace"
	"time"
)

// Measure receives values of one kind; nil discards them. Any goroutine may call it, even the goroutine that
// applies the log, so it must not block.
type Measure func(value int64)

// Note passes a value on.
func (m Measure) Note(value int64) {
	if m != nil {
		m(value)
	}
}

// Took passes on a duration, in microseconds.
func (m Measure) Took(d time.Duration) { m.Note(max(d, 0).Microseconds()) }

// Set holds everything that a server measures about its part in the cluster. Times are in microseconds.
type Set struct {
	EntryBytes        Measure // bytes of each log entry, when this server proposes it
	StreamWaiting     Measure // how many requests of this server are under way, when it proposes an entry
	EntryRequests     Measure // how many requests each log entry has, when it is applied here
	CommitTime        Measure // time from the leader's stamp in the entry to its commit; at the leader
	ProposalTime      Measure // time from the leader's stamp in the entry until it is applied; at the leader
	PropagationTime   Measure // time from the leader's stamp in the entry until it is applied here
	Elections         Measure // 1 for each time that this server loses its leader
	ElectionTime      Measure // time from the loss of the leader until this server knows a leader
	LeaderUnavailable Measure // time from the loss of the leader until this server leads itself
	Unavailable       Measure // time from the end of serving, or from the start, until clients are served
	SnapshotWriteTime Measure // time to write a snapshot
	SnapshotReadTime  Measure // time to read the snapshot that was found at the start
	SnapshotSent      Measure // 1 for each snapshot sent to a follower
	ReplayEntries     Measure // how many log entries found at the start were applied
	ReplayTime        Measure // time to apply the log entries that were found at the start
}

// Step puts a step of a request or an entry into the execution trace that is being recorded; see
// docs/operations.md. Callers ask trace.IsEnabled first. So while no trace is recorded, a step only reads a
// flag.
func Step(what, format string, args ...any) {
	trace.Logf(context.Background(), what, format, args...)
}
