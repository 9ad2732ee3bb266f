package signal

import (
	"context"
	"runtime/trace"
	"time"
)

// Measure receives values of one kind; nil discards them. Any goroutine may call it, even the one that
// applies the log, so it must not block.
type Measure func(value int64)

// Note passes a value on.
func (m Measure) Note(value int64) {
	if m != nil {
		m(value)
	}
}

// Took notes a time, in microseconds.
func (m Measure) Took(d time.Duration) { m.Note(max(d, 0).Microseconds()) }

// Set holds everything that a server measures about its part in the cluster. Times are in microseconds.
type Set struct {
	EntryBytes        Measure // of each log entry, when this server proposes it
	StreamWaiting     Measure // requests of this server under way, at the same moment
	EntryRequests     Measure // in each log entry, when it is applied here
	CommitTime        Measure // from the leader's stamp to the commit, at the leader
	ProposalTime      Measure // from the leader's stamp until it is applied, at the leader
	PropagationTime   Measure // from the leader's stamp until it is applied here
	Elections         Measure // 1, when this server loses its leader
	ElectionTime      Measure // from that loss until it knows a leader
	LeaderUnavailable Measure // from that loss until it leads itself
	Unavailable       Measure // from ceasing to serve, or the start, until clients are served
	SnapshotWriteTime Measure // how long writing a snapshot took
	SnapshotReadTime  Measure // when the one found at the start is read
	SnapshotSent      Measure // 1, when a follower has been sent one
	ReplayEntries     Measure // log entries found at the start, when they are applied
	ReplayTime        Measure // how long applying those entries took
}

// Step puts a step of a request or an entry into the execution trace that is being recorded;
// see docs/operations.md. Callers ask trace.IsEnabled first, so that a step costs one look at a
// flag while no trace is recorded.
func Step(what, format string, args ...any) {
	trace.Logf(context.Background(), what, format, args...)
}
