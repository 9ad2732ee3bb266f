package followers

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// newsOf is the News of server 1, which leads term 5.
func newsOf(t *testing.T, a *applied.State) *News {
	var ran sync.WaitGroup
	t.Cleanup(ran.Wait)
	return NewNews(Leader{ID: 1, Term: 5, Leads: func() bool { return true }, State: a.FSM,
		Stored: new(Stored),
		Go:     ran.Go, Log: slog.New(slog.DiscardHandler)})
}

// If clients of a follower have sessions there, or wait for requests in an entry, the follower hears of the
// commit at once. If the leader has acted by itself, all followers do.
func TestWhoIsNudged(t *testing.T) {
	t.Parallel()
	a := applied.New()
	applied.At(a.FSM, 7, 5)
	g := newsOf(t, a)
	g.all = false
	sessions := session.NewTable(1)
	s := sessions.Create(1000, [jute.PasswordSize]byte{}, 2, "", 0)
	want := func(two, three bool) {
		t.Helper()
		expect.Equal(t, g.waits(2, sessions), two, "server 2 is told at once")
		expect.Equal(t, g.waits(3, sessions), three, "server 3 is told at once")
	}
	want(true, false)
	sessions.Remove(s.ID)
	want(false, false)
	g.Asked(3)
	want(false, true)
	g.TellBefore() // this is for an earlier entry, so server 3 must still be told
	want(false, true)
	g.All()
	want(true, true)
}

// A leader announces a commit only while it leads, and only if the entry is of its own term: it does not know
// which entries another leader has committed.
func TestNudgesAreOfOnesOwnTerm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		term        uint64 // term of the last applied entry
		leads, told bool
	}{{5, true, true}, {5, false, false}, {4, true, false}, {6, true, false}} {
		a := applied.New()
		g := newsOf(t, a)
		g.o.Leads = func() bool { return c.leads }
		f := &nudged{ch: make(chan state.Position, 1)}
		g.followers["2"] = f
		applied.At(a.FSM, 9, c.term)
		g.Tell()
		if told := len(f.ch) == 1; told != c.told {
			t.Errorf("an entry of term %d, by the leader of term 5 (still: %v): told %v", c.term, c.leads,
				told)
		}
	}
}

// A follower without waiting clients hears of commits later. One message then tells it of all entries so
// far.
func TestOthersAreNudgedLater(t *testing.T) {
	t.Parallel()
	a := applied.New()
	g := newsOf(t, a)
	g.all = false
	f := &nudged{ch: make(chan state.Position, 1)}
	g.followers["2"] = f
	g.mu.Lock()
	g.late = true // as if tellRest were about to run
	g.mu.Unlock()
	applied.At(a.FSM, 6, 5)
	g.Tell()
	expect.Equal(t, len(f.ch), 0, "told at once")
	g.tellRest()
	expect.Equal(t, (<-f.ch).Index, 6, "told when it is due")
	for index := range uint64(3) {
		applied.At(a.FSM, 7+index, 5)
		g.Tell()
	}
	select {
	case at := <-f.ch:
		expect.That(t, at.Index >= 7, "told of entry %d, want 7 or later", at.Index)
		expect.Equal(t, at.Term, 5, "term of the entry that it is told of")
	case <-time.After(30 * time.Second):
		t.Fatal("not told")
	}
	must.Await(t, "it is told of the last entry", time.Minute, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return !g.late && f.told == 9
	})
}

// nudges records the messages to followers.
type nudges struct {
	raft.Transport
	sent chan uint64
}

func (n nudges) EncodePeer(raft.ServerID, raft.ServerAddress) []byte { return nil }

func (n nudges) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest,
	_ *raft.AppendEntriesResponse) error {
	n.sent <- args.LeaderCommitIndex
	return nil
}

// The news of a commit follows the entry. A follower without the entry would answer that an entry is missing,
// which wastes a round trip.
func TestNudgesFollowTheirEntry(t *testing.T) {
	t.Parallel()
	trans := nudges{sent: make(chan uint64)}
	a := applied.New()
	g := newsOf(t, a)
	g.o.Raft = &consensus.Raft{Raft: &elect.Raft{ID: 1, Trans: trans}}
	g.Follow([]raft.Server{{ID: "1"}, {ID: "2"}})
	tell := func(index uint64) {
		applied.At(a.FSM, index, 5)
		g.All()
		g.Tell()
	}
	told := func(want uint64) {
		t.Helper()
		select {
		case index := <-trans.sent:
			expect.Equal(t, index, want, "told of %d", index)
		case <-time.After(30 * time.Second):
			t.Fatal("not told of", want)
		}
	}
	tell(7)
	for _, early := range []state.Position{{Index: 9, Term: 4}, {Index: 6, Term: 5}, {Index: 9, Term: 4}} {
		g.o.Stored.Note(2, early)
	}
	select {
	case index := <-trans.sent:
		t.Errorf("told of %d before it has it", index)
	case <-time.After(50 * time.Millisecond):
	}
	g.o.Stored.Note(3, state.Position{Index: 9, Term: 5})
	g.o.Stored.Note(2, state.Position{Index: 7, Term: 5})
	told(7)
	g.o.Stored.Note(2, state.Position{Index: 8, Term: 5})
	tell(8)
	told(8)
	tell(9)
	g.o.Stored.Note(2, state.Position{Index: 9, Term: 5})
	told(9)
	g.o.Stored.Note(2, state.Position{Index: 10, Term: 5})
	tell(10)
	told(10)
	tell(11)
	g.Close() // Close does not wait for an answer that may never come
}

// A server may not answer a nudge. The end of a term does not wait for it, because the leader may soon be
// elected again.
func TestEndOfATermWaitsForNoNudge(t *testing.T) {
	t.Parallel()
	trans := nudges{sent: make(chan uint64)}
	a := applied.New()
	g := newsOf(t, a)
	g.o.Raft = &consensus.Raft{Raft: &elect.Raft{ID: 1, Trans: trans}}
	g.Follow([]raft.Server{{ID: "1"}, {ID: "2"}})
	applied.At(a.FSM, 7, 5)
	g.o.Stored.Note(2, state.Position{Index: 7, Term: 5})
	g.Tell()
	g.mu.Lock()
	ch := g.followers["2"].ch
	g.mu.Unlock()
	must.Await(t, "the nudge is on its way", time.Minute, func() bool { return len(ch) == 0 })
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the term goes on until the nudge is answered")
	}
	<-trans.sent
}

// A leader sends nudges to the members of the newest configuration, at their newest addresses.
func TestFollowersThatAreNudged(t *testing.T) {
	t.Parallel()
	a := applied.New()
	g := newsOf(t, a)
	server := func(id int, addr string) raft.Server {
		return raft.Server{ID: raft.ServerID(fmt.Sprint(id)), Address: raft.ServerAddress(addr)}
	}
	g.Follow([]raft.Server{server(1, "a"), server(2, "b"), server(3, "c")})
	must.Equal(t, len(g.followers), 2, "followers")
	two, three := g.followers["2"], g.followers["3"]
	g.Follow([]raft.Server{server(1, "a"), server(2, "b"), server(3, "moved"), server(4, "d")})
	expect.Equal(t, len(g.followers), 3, "followers, when one has come and one has moved")
	expect.That(t, g.followers["2"] == two, "a follower that stays is replaced")
	expect.That(t, g.followers["3"] != three, "a follower that has moved is not replaced")
	expect.Equal(t, g.followers["3"].addr, "moved", "address of the follower that has moved")
	_, open := <-three.ch
	expect.That(t, !open, "a follower at its former address is nudged")
	g.Follow([]raft.Server{server(1, "a"), server(4, "d")})
	expect.Equal(t, len(g.followers), 1, "followers, when two have gone")
	expect.That(t, g.followers["4"] != nil, "the follower that stays is not told: %v", g.followers)
	g.Close()
	expect.Equal(t, len(g.followers), 0, "followers of a term that is over")
	g.Follow([]raft.Server{server(2, "b")})
	expect.Equal(t, len(g.followers), 0, "followers of a term that is over")
}

// A leader announces each entry once. News of a newer entry replaces news that still waits.
func TestNudgesTellTheNewest(t *testing.T) {
	t.Parallel()
	a := applied.New()
	g := newsOf(t, a)
	leads := true
	g.o.Leads = func() bool { return leads }
	f := &nudged{ch: make(chan state.Position, 1)}
	g.followers["2"] = f
	at := func(index uint64) {
		applied.At(a.FSM, index, 5)
	}
	waits := func(want uint64) {
		t.Helper()
		select {
		case got := <-f.ch:
			expect.Equal(t, got, state.Position{Index: want, Term: 5})
		default:
			expect.Equal(t, 0, want, "told of nothing")
		}
	}
	at(7)
	g.Tell()
	waits(7)
	expect.That(t, !g.all, "all are told again")
	g.All()
	g.Tell()
	waits(0) // the entry was announced, so no entry waits
	expect.That(t, g.all, "who is to be told is forgotten without an entry")
	at(8)
	g.Tell()
	at(9)
	g.Asked(2)
	g.Tell()
	expect.Equal(t, len(g.asked), 0, "servers that asked")
	waits(9)
	waits(0)
	at(10)
	g.tellRest()
	waits(10)
	g.tellRest()
	waits(0)
	at(11)
	leads = false
	g.tellRest()
	waits(0)
	leads = true
	g.closed = true
	g.tellRest()
	waits(0)
	g.closed = false
	g.tellRest()
	waits(11)
}

// Among a follower's reports, the newest term counts, and within a term the highest index.
func TestNewestWordOfAFollowerCounts(t *testing.T) {
	t.Parallel()
	var s Stored
	b := s.of(2)
	expect.That(t, s.of(2) == b, "server 2 has two records")
	expect.That(t, s.of(3) != b, "servers 2 and 3 have one record")
	for _, c := range []struct{ now, is state.Position }{
		{state.Position{Index: 5, Term: 2}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 4, Term: 2}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 9, Term: 1}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 6, Term: 2}, state.Position{Index: 6, Term: 2}},
		{state.Position{Index: 1, Term: 3}, state.Position{Index: 1, Term: 3}},
	} {
		b.note(c.now)
		expect.Equal(t, b.at, c.is)
		expect.Equal(t, len(b.grown), 1, "news")
		expect.That(t, b.has(c.is), "it lacks the last stored entry %+v", c.is)
		expect.That(t, !b.has(state.Position{Index: c.is.Index + 1, Term: c.is.Term}),
			"it has the entry after %+v", c.is)
		expect.That(t, !b.has(state.Position{Index: c.is.Index, Term: c.is.Term - 1}),
			"it has entry %d of the term before %d", c.is.Index, c.is.Term)
		expect.That(t, b.has(state.Position{Index: c.is.Index - 1, Term: c.is.Term}),
			"it lacks the entry before %+v", c.is)
		<-b.grown
	}
}
