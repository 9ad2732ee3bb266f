package apply

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// noteSnapshot remembers the newest snapshot.
func (f *FSM) noteSnapshot(zxid int64, at time.Time) {
	f.snapshot.Store(&status.Snapshot{Zxid: zxid, Time: at})
}

// Newest returns the newest snapshot. It returns nil if this server has no snapshot.
func (f *FSM) Newest() *status.Snapshot { return f.snapshot.Load() }

// Found is called if the server finds a snapshot at its start. It records when the snapshot was written.
func (f *FSM) Found(written time.Time) {
	if s := f.snapshot.Load(); s != nil {
		f.noteSnapshot(s.Zxid, written)
	}
}

// measureApplied measures one log entry that has just been applied here.
func (f *FSM) measureApplied(l *raft.Log, began time.Time, requests int64) {
	m, now := &f.o.Measures, time.Now()
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
	if f.leads.Load() != nil { // true while this server leads
		m.CommitTime.Took(began.Sub(l.AppendedAt))
		m.ProposalTime.Took(now.Sub(l.AppendedAt))
	}
}
