package elect

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/zlockd/zlockd/test/expect"
)

// TestWhatRaftKnows checks which leader a server knows, and when the server last heard from that leader:
// without a leader, as a follower, as the leader, and as a leader whose log hangs.
func TestWhatRaftKnows(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3}, []uint32{4}, func(w *world) {
		r := w.e.Raft
		id, _ := r.Known()
		expect.Equal(t, id, 0, "no leader: the leader that it knows")
		expect.That(t, !r.Leads(), "no leader: it leads")
		expect.That(t, r.NobodyLeadsBut(0), "no leader: it knows a leader")
		expect.That(t, r.NobodyLeadsBut(3), "no leader: it knows a leader other than server 3")
		time.Sleep(time.Second)
		expect.That(t, r.HeardOfLeader().IsZero(), "no leader: it heard of one at %v", r.HeardOfLeader())
		expect.Equal(t, r.Silence(), time.Since(r.Began), "no leader: the silence counts from the start")
		w.leads(3, 5)
		heard := time.Now()
		id, at := r.Known()
		expect.Equal(t, id, 3, "server 3 leads: the leader that it knows")
		expect.Equal(t, at, addr(3), "server 3 leads: the address that it knows")
		expect.That(t, !r.Leads(), "server 3 leads: this server leads")
		expect.That(t, !r.NobodyLeadsBut(2), "server 3 leads: it knows no leader other than server 2")
		expect.That(t, r.NobodyLeadsBut(3), "server 3 leads: it knows a leader other than server 3")
		m := r.moment()
		time.Sleep(time.Second)
		since := heard.Sub(r.HeardOfLeader())
		expect.That(t, since >= 0 && since <= 10*time.Millisecond,
			"the leader's message is noted %v before it returns, want 0 to 10 ms", since)
		expect.That(t, r.Silence() >= time.Second && r.Silence() <= time.Second+10*time.Millisecond,
			"a second after the message the silence is %v, want 1 s to 1.01 s", r.Silence())
		expect.That(t, r.isStill(m), "nothing has happened, and the moment is over")
		expect.That(t, r.isStill(moment{term: 5}), "nothing has happened, and term 5 is over")
		expect.That(t, !r.isStill(moment{term: 4}), "term 5 has begun, and term 4 is not over")
		w.leads(3, 5)
		expect.That(t, !r.isStill(m), "the leader was heard of again, and the moment is not over")
		expect.That(t, r.isStill(moment{term: 5}), "the leader was heard of again, and term 5 is over")
		w.leads(3, 6)
		expect.That(t, !r.isStill(moment{term: 5}), "term 6 has begun, and term 5 is not over")
		d := r.Beat(time.Minute)
		expect.That(t, d > 0, "the next beat is in %v, want a time to come", d)
		expect.Equal(t, time.Since(r.Began.Add(-d))%time.Minute, 0,
			"the next beat is in %v; from the start to the beat, beyond whole minutes", d)
		others, own := r.voters()
		expect.Equal(t, len(others), 2, "other voters")
		expect.That(t, own, "this server is not a voter")
		w.elected()
		expect.That(t, r.Leads(), "it is elected and does not lead")
		expect.Equal(t, r.Silence(), 0, "silence at a leader")
		expect.That(t, r.HeardOfLeader().IsZero(), "it leads, and heard of a leader at %v", r.HeardOfLeader())
		expect.That(t, r.NobodyLeadsBut(1), "it leads, and knows another leader")
		r.stuck.Store(true)
		expect.That(t, !r.Leads(), "its log hangs, and it leads")
		expect.Equal(t, r.State(), raft.Leader, "the state of its raft while its log hangs")
	})
}

// drained() waits until raft has completed all earlier requests, but not longer than `limit`.
func TestDrained(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2}, nil, func(w *world) {
		r := w.e.Raft
		w.leads(2, 5)
		was := r.moment()
		expect.That(t, r.drained(w.ctx, time.Second), "raft has nothing to do, and is not drained")
		expect.That(t, r.isStill(was), "the wait for raft has ended the moment")
		w.e.Raft.Shutdown().Error() // raft's main loop accepts nothing more
		began := time.Now()
		expect.That(t, !r.drained(w.ctx, time.Second), "raft answers nothing, and is drained")
		expect.Equal(t, time.Since(began), time.Second, "raft answers nothing: the time waited")
	})
}
