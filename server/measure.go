package server

import (
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

// measures records in the admin metrics what raftfsm measures.
func measures(m *admin.Metrics) raftfsm.Measures {
	return raftfsm.Measures{
		EntryBytes:        func(v int64) { m.Proposals.Observe(v); m.ProposalCount.Add(1) },
		StreamWaiting:     m.QueueSize.Observe,
		EntryRequests:     m.BatchSize.Observe,
		CommitTime:        m.AckLatency.Observe,
		ProposalTime:      m.ProposalLatency.Observe,
		PropagationTime:   m.PropagationLatency.Observe,
		Elections:         func(v int64) { m.Elections.Add(v) },
		ElectionTime:      m.ElectionTime.Observe,
		LeaderUnavailable: m.LeaderUnavailable.Observe,
		Unavailable:       m.Unavailable.Observe,
		SnapshotWriteTime: m.SnapshotWrite.Observe,
		SnapshotReadTime:  m.SnapshotRead.Observe,
		SnapshotSent:      func(v int64) { m.SnapshotsSent.Add(v) },
		ReplayEntries:     m.ReplayEntries.Observe,
		ReplayTime:        m.ReplayTime.Observe,
	}
}
