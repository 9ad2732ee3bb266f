package elect

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/zlockd/zlockd/test/expect"
)

// The test checks what a server reports as its leader: before it knows one, while it follows one, and while
// it leads.
func TestWhatRaftKnows(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3}, []uint32{4}, func(w *world) {
		r := w.e.Raft
		if id, _ := r.Known(); id != 0 || r.Leads() || !r.NobodyLeadsBut(0) || !r.NobodyLeadsBut(3) {
			t.Errorf("no leader: %d is known", id)
		}
		time.Sleep(time.Second)
		expect.That(t, r.HeardOfLeader().IsZero(),
			"no leader: heard %v, silence %v: want r.HeardOfLeader().IsZero()",
			r.HeardOfLeader(), r.Silence())
		expect.Equal(t, r.Silence(), time.Since(r.Began),
			"no leader: heard %v, silence %v: r.Silence()", r.HeardOfLeader(), r.Silence())
		w.leads(3, 5)
		heard := time.Now()
		if id, at := r.Known(); id != 3 || at != addr(3) || r.Leads() || r.NobodyLeadsBut(2) || !r.NobodyLeadsBut(3) {
			t.Errorf("a leader: %d at %s is known", id, at)
		}
		m := r.moment()
		time.Sleep(time.Second)
		since := heard.Sub(r.HeardOfLeader())
		expect.That(t, since >= 0 && since <= 10*time.Millisecond,
			"a leader: heard %v before, silence %v: want since >= 0 && since <= 10*time.Millisecond",
			since, r.Silence())
		expect.That(t, r.Silence() >= time.Second && r.Silence() <= time.Second+10*time.Millisecond,
			"a leader: heard %v before, silence %v", since, r.Silence())
		expect.That(t, r.isStill(m), "nothing has happened: want r.isStill(m)")
		expect.That(t, r.isStill(moment{term: 5}),
			"nothing has happened: want r.isStill(moment{term: 5})")
		expect.That(t, !r.isStill(moment{term: 4}),
			"nothing has happened: want !r.isStill(moment{term: 4})")
		if w.leads(3, 5); r.isStill(m) || !r.isStill(moment{term: 5}) {
			t.Error("the leader was heard of")
		}
		if w.leads(3, 6); r.isStill(moment{term: 5}) {
			t.Error("a term has begun")
		}
		d := r.Beat(time.Minute)
		expect.That(t, d > 0, "the next beat is in %v: want d > 0", d)
		expect.Equal(t, time.Since(r.Began.Add(-d))%time.Minute, 0,
			"the next beat is in %v", d)
		if others, own := r.voters(); len(others) != 2 || !own {
			t.Errorf("the other voters are %v, and this server is one: %v", others, own)
		}
		if w.elected(); !r.Leads() || r.Silence() != 0 || !r.HeardOfLeader().IsZero() || !r.NobodyLeadsBut(1) {
			t.Error("it leads")
		}
		if r.stuck.Store(true); r.Leads() || r.State() != raft.Leader {
			t.Error("its log hangs")
		}
	})
}

// A server waits until raft has completed its request, but not longer than allowed.
func TestDrained(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2}, nil, func(w *world) {
		r := w.e.Raft
		w.leads(2, 5)
		was := r.moment()
		expect.That(t, r.drained(w.ctx, time.Second),
			"raft has nothing to do: want r.drained(w.ctx, time.Second)")
		expect.That(t, r.isStill(was), "raft has nothing to do: want r.isStill(was)")
		w.e.Raft.Shutdown().Error() // raft's main loop accepts nothing more
		for began := time.Now(); r.drained(w.ctx, time.Second) || time.Since(began) != time.Second; {
			t.Fatalf("raft hangs: after %v", time.Since(began))
		}
	})
}
