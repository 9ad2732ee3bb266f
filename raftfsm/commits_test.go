package raftfsm

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestWhoIsNudged asks who is told of a commit at once: servers with sessions, servers whose requests were
// in the entry, and all when the leader acted on its own account.
func TestWhoIsNudged(t *testing.T) {
	t.Parallel()
	tm := &term{n: &Node{fsm: newFSM(1, "c", new(watcher), nil)}, links: linkSet{}}
	tm.nudger = newNudger(tm)
	tm.nudger.all = false
	sessions := session.NewTable(1)
	s := sessions.Create(1000, [jute.PasswordSize]byte{}, 2, "", 0)
	want := func(two, three bool) {
		t.Helper()
		if a, b := tm.nudger.waits(2, sessions), tm.nudger.waits(3, sessions); a != two || b != three {
			t.Errorf("servers 2 and 3 are told: %v and %v, want %v and %v", a, b, two, three)
		}
	}
	want(true, false)
	sessions.Remove(s.ID)
	want(false, false)
	e := filling{t: tm, requests: 1}
	l := &inLink{queue: []state.Block{{Origin: 3, Count: 1}}}
	tm.links.add(l)
	e.link(l, 1, 1<<10)
	want(false, true)
	tm.acts.add(state.Request{Op: state.OpBarrier})
	tm.fill(nil)
	want(true, true)
}

// A server's blocks take no more of an entry than its share, as soon as one of them fills it.
func TestLinkTakesItsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ share, want int }{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}} {
		tm := &term{n: &Node{fsm: newFSM(1, "c", new(watcher), nil)}, links: linkSet{}}
		tm.nudger = newNudger(tm)
		l := &inLink{}
		for range 4 {
			l.queue = append(l.queue, state.Block{Origin: 3, Count: 2})
		}
		tm.links.add(l)
		e := filling{t: tm, requests: stream.BatchRequests}
		e.link(l, c.share, 1<<10)
		expect.Equal(t, 4-len(l.queue), c.want, "blocks of two requests in a share of %d", c.share)
	}
}

// A leader speaks for entries of its own term, while it leads: of another's it
// does not know what is committed.
func TestNudgesAreOfOnesOwnTerm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		term        uint64 // of the entry applied last
		leads, told bool
	}{{5, true, true}, {5, false, false}, {4, true, false}, {6, true, false}} {
		tm := &term{n: &Node{fsm: newFSM(1, "c", new(watcher), nil)}, links: linkSet{}, number: 5}
		g := newNudger(tm)
		g.leads = func() bool { return c.leads }
		f := &nudged{ch: make(chan state.Position, 1)}
		g.followers["2"] = f
		tm.n.fsm.index.Store(9)
		tm.n.fsm.term.Store(c.term)
		g.tell()
		if told := len(f.ch) == 1; told != c.told {
			t.Errorf("an entry of term %d, by the leader of term 5 (still: %v): told %v", c.term, c.leads, told)
		}
	}
}

// A follower at which no client waits is told later, once for all entries until then.
func TestOthersAreNudgedLater(t *testing.T) {
	t.Parallel()
	tm := &term{n: &Node{fsm: newFSM(1, "c", new(watcher), nil)}, links: linkSet{}, number: 5}
	g := newNudger(tm)
	g.leads, g.all = func() bool { return true }, false
	f := &nudged{ch: make(chan state.Position, 1)}
	g.followers["2"] = f
	tm.n.fsm.term.Store(5)
	for index := range uint64(3) {
		tm.n.fsm.index.Store(7 + index)
		g.tell()
	}
	select {
	case at := <-f.ch:
		expect.That(t, at.Index >= 7, "told of %+v: want at.Index >= 7", at)
		expect.Equal(t, at.Term, 5, "told of %+v: at.Term", at)
	case <-time.After(30 * time.Second):
		t.Fatal("not told")
	}
	eventually(t, "it is told of the last entry", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return !g.late && f.told == 9
	})
}

// nudges takes what is sent to followers.
type nudges struct {
	raft.Transport
	sent chan uint64
}

func (n nudges) EncodePeer(raft.ServerID, raft.ServerAddress) []byte { return nil }

func (n nudges) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) error {
	n.sent <- args.LeaderCommitIndex
	return nil
}

// A follower that is told of a commit before it has the entry answers that
// something is missing, which costs a round trip and tells it nothing.
func TestNudgesFollowTheirEntry(t *testing.T) {
	t.Parallel()
	trans := nudges{sent: make(chan uint64)}
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil), raft: &consensus.Raft{Raft: &elect.Raft{ID: 1, Trans: trans}}}, number: 5}
	g := newNudger(tm)
	g.leads = func() bool { return true }
	g.setFollowers([]raft.Server{{ID: "1"}, {ID: "2"}})
	tell := func(index uint64) {
		tm.n.fsm.term.Store(5)
		tm.n.fsm.index.Store(index)
		g.all = true
		g.tell()
	}
	h := host{tm.n}
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
		h.Stored(2, early.Term, early.Index)
	}
	select {
	case index := <-trans.sent:
		t.Errorf("told of %d before it has it", index)
	case <-time.After(50 * time.Millisecond):
	}
	h.Stored(3, 5, 9)
	h.Stored(2, 5, 7)
	told(7)
	h.Stored(2, 5, 8)
	tell(8)
	told(8)
	tell(9)
	h.Stored(2, 5, 9)
	told(9)
	h.Stored(2, 5, 10)
	tell(10)
	told(10)
	tell(11)
	g.close() // does not wait for what may never come
}

// A term ends at once, also while a nudge is on its way to a server that does not
// answer: this server may be elected again.
func TestEndOfATermWaitsForNoNudge(t *testing.T) {
	t.Parallel()
	trans := nudges{sent: make(chan uint64)}
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil), raft: &consensus.Raft{Raft: &elect.Raft{ID: 1, Trans: trans}}}, number: 5}
	g := newNudger(tm)
	g.leads = func() bool { return true }
	g.setFollowers([]raft.Server{{ID: "1"}, {ID: "2"}})
	tm.n.fsm.term.Store(5)
	tm.n.fsm.index.Store(7)
	host{tm.n}.Stored(2, 5, 7)
	g.tell()
	g.mu.Lock()
	ch := g.followers["2"].ch
	g.mu.Unlock()
	eventually(t, "the nudge is on its way", func() bool { return len(ch) == 0 })
	closed := make(chan struct{})
	go func() { g.close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the term goes on until the nudge is answered")
	}
	<-trans.sent
	tm.n.wg.Wait()
}

// A server that sends requests that no server can read must hear of it: its link ends, and
// it sends its requests again over another one. Passed over, they would be lost.
func TestLinkThatBringsNonsenseIsClosed(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	eventually(t, "a leader", func() bool { return n.term.Load() != nil && n.raft.Leads() })
	request := state.Request{Op: jute.OpSync, Session: 1, Body: jute.AppendString(nil, "/")}
	block := func(tune func(*state.Block)) []byte {
		bl := state.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
		tune(&bl)
		return bl.Append(nil)
	}
	good := block(func(*state.Block) {})
	for name, m := range map[string]struct {
		typ     byte
		payload []byte
	}{
		"half a block":               {peer.LinkBlock, good[:len(good)-1]},
		"a block and a byte":         {peer.LinkBlock, append(bytes.Clone(good), 0)},
		"nothing":                    {peer.LinkBlock, nil},
		"another server's block":     {peer.LinkBlock, block(func(bl *state.Block) { bl.Origin = 3 })},
		"the leader's own account":   {peer.LinkBlock, block(func(bl *state.Block) { bl.Origin = 0 })},
		"fewer requests than it has": {peer.LinkBlock, block(func(bl *state.Block) { bl.Count = 0 })},
		"half a request": {
			peer.LinkBlock, block(func(bl *state.Block) { bl.Requests = bl.Requests[:len(bl.Requests)-1] })},
		"half a touch":       {peer.LinkTouches, make([]byte, 17)},
		"an ack":             {peer.LinkAck, make([]byte, 16)},
		"an unknown message": {99, nil},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			served := make(chan struct{})
			go func() { host{n}.ServeLink(there, &peer.Greeting{From: 2, Version: peer.Version}); close(served) }()
			here.SetDeadline(time.Now().Add(20 * time.Second))
			w := bufio.NewWriter(here)
			// First what is in order, which is answered: the link stands.
			touches := peer.Touches{Number: 41}
			must.OK(t, peer.WriteMessage(w, peer.LinkTouches, touches.Append(nil)))
			must.OK(t, w.Flush())
			typ, payload, err := peer.ReadMessage(bufio.NewReader(here))
			ack, aerr := peer.ParseTouches(payload)
			must.OK(t, err, "answer %d %x, %v", typ, payload, err)
			must.OK(t, aerr, "answer %d %x, %v", typ, payload, err)
			must.Equal(t, typ, peer.LinkAck, "answer %d %x, %v: typ", typ, payload, err)
			must.Equal(t, ack.Number, 41, "answer %d %x, %v: ack.Number", typ, payload, err)
			must.OK(t, peer.WriteMessage(w, m.typ, m.payload))
			w.Flush()
			must.Equal(t, expect.Err(here.Read(make([]byte, 1))), io.EOF, "the link goes on")
			<-served
		})
	}
	expect.Equal(t, len(n.term.Load().links.links), 0, "links that ended are still there")
}

// A leader that stands still takes nothing from its links and does not break
// them. When another leads, who was sending goes on there.
func TestLinkThatTakesNoMoreEndsWithTheLeadership(t *testing.T) {
	t.Parallel()
	var still stillNet
	c := newTrio(t, false, func(o *Options) {
		brisk(o)
		if o.ID == 3 {
			still.tune(o)
		}
	})
	// A busy machine may refuse to hand leadership over, and may elect another server at any time.
	lead := func(next uint32) {
		if now := c.leader(); now != 0 && uint32(now) != next {
			_ = c.nodes[now].Lead(t.Context(), next)
		}
	}
	var from uint32
	eventually(t, "a link to another leader", func() bool {
		if c.leader() == 3 {
			lead(1)
		}
		from = c.nodes[3].linked.Load()
		return from != 0 && from != 3 && int(from) == c.leader()
	})
	still.takesNothing(func(p peer.Purpose, addr string) bool {
		return p == peer.Link &&
			addr == c.opts[3].Peers[from]
	})
	time.Sleep(2 * c.nodes[3].o.touchEvery()) // it has something to say by then
	next := 3 - from
	eventually(t, "a link to the new leader", func() bool {
		lead(next)
		return c.nodes[3].linked.Load() == next
	})
	c.create(3, "/through-the-new-leader")
}
