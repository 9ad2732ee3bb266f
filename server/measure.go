package server

import (
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

// measured returns the function that records what raftfsm measures in the admin metrics.
func measured(m *admin.Metrics) func(raftfsm.Measure, int64) {
	recorders := map[raftfsm.Measure]*admin.Recorder{
		raftfsm.StreamWaiting:     &m.QueueSize,
		raftfsm.EntryRequests:     &m.BatchSize,
		raftfsm.CommitTime:        &m.AckLatency,
		raftfsm.ProposalTime:      &m.ProposalLatency,
		raftfsm.PropagationTime:   &m.PropagationLatency,
		raftfsm.ElectionTime:      &m.ElectionTime,
		raftfsm.LeaderUnavailable: &m.LeaderUnavailable,
		raftfsm.Unavailable:       &m.Unavailable,
		raftfsm.SnapshotWriteTime: &m.SnapshotWrite,
		raftfsm.SnapshotReadTime:  &m.SnapshotRead,
		raftfsm.ReplayEntries:     &m.ReplayEntries,
		raftfsm.ReplayTime:        &m.ReplayTime,
	}
	return func(what raftfsm.Measure, v int64) {
		switch what {
		case raftfsm.EntryBytes:
			m.Proposals.Observe(v)
			m.ProposalCount.Add(1)
		case raftfsm.Elections:
			m.Elections.Add(v)
		case raftfsm.SnapshotSent:
			m.SnapshotsSent.Add(v)
		default:
			if r := recorders[what]; r != nil {
				r.Observe(v)
			}
		}
	}
}
