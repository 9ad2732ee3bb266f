package raftfsm

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// The measures of a server's part in the cluster.
type (
	Measure  = signal.Measure
	Measures = signal.Set
)

// noteSnapshot remembers the newest snapshot.
func (f *fsm) noteSnapshot(zxid int64, at time.Time) {
	f.snapshot.Store(&status.Snapshot{Zxid: zxid, Time: at})
}

// measureApplied measures one log entry that has just been applied here.
func (f *fsm) measureApplied(l *raft.Log, began time.Time, requests int64) {
	m, now := &f.measures, time.Now()
	m.EntryRequests.Note(requests)
	if to := f.replay.to; to > 0 {
		if l.Index >= to {
			m.ReplayEntries.Note(int64(to - f.replay.from))
			m.ReplayTime.Took(now.Sub(f.replay.began))
			f.replay.to = 0
		}
		if l.Index <= to {
			return // the entry was appended before this process started
		}
	}
	if l.AppendedAt.IsZero() {
		return
	}
	m.PropagationTime.Took(now.Sub(l.AppendedAt))
	if f.tracker.Load() != nil { // this server leads
		m.CommitTime.Took(began.Sub(l.AppendedAt))
		m.ProposalTime.Took(now.Sub(l.AppendedAt))
	}
}

// replay is the part of the log that was found on the disk at the start. It is written before raft
// runs, then by the goroutine that applies the log.
type replay struct {
	from, to uint64 // from the snapshot to the newest entry; to is 0 once that entry is applied
	began    time.Time
}
