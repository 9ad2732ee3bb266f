package raftfsm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What raft shows of a server's log is what is durable; a server is lacking if it is not in the
// configuration.
func TestWhatRaftKnowsOfAServer(t *testing.T) {
	t.Parallel()
	n := ended(t, Options{DataDir: t.TempDir(), DiskReserve: -1})
	term, index := n.raft.LastEntry()
	sure := min(n.raft.LastIndex(), n.disk.Durable())
	expect.That(t, term == n.raft.CurrentTerm() && index == sure, "%d of term %d, %d are durable", index, term,
		sure)
	expect.That(t, !n.raft.Lacks(1),
		"it lacks 1: %v, 9: %v: want !n.raft.Lacks(1)", n.raft.Lacks(1), n.raft.Lacks(9))
	expect.That(t, n.raft.Lacks(9),
		"it lacks 1: %v, 9: %v: want n.raft.Lacks(9)", n.raft.Lacks(1), n.raft.Lacks(9))
	list, config := n.raft.Configuration()
	expect.That(t, len(list) == 1 && config == 1, "%v as of entry %d", list, config)

	// A snapshot of which no entry is left in the log.
	n, _ = start(t, Options{TrailingLogs: 1})
	a := newAsker(t, n)
	for range 10 {
		a.create("/x")
	}
	must.OK(t, n.Snapshot())
	n.Abort()
	last := n.raft.LastIndex()
	must.OK(t, n.disk.Log().DeleteRange(1, last))
	term, index = n.raft.LastEntry()
	expect.That(t, term > 0 && index >= last, "%d of term %d, the log ends at %d", index, term, last)
}

// A server that does not lead asks the one that does, if it knows one.
func TestServerThatKnowsNoLeaderToAsk(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	alone, _ := start(t, Options{})
	_, err := alone.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, errAlone)
	n, _ := start(t, Options{Peers: map[uint32]string{1: addr}, PeerListen: addr})
	newAsker(t, n)
	_, err = n.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, errNotLeading, "it leads itself, by raft's word")
	tm := n.term.Load()
	n.Abort()
	_, err = n.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, n.serving.NoLeader())
	err = n.changeMember(t.Context(), change.Change{Op: "remove", ID: 2}, false)
	expect.Equal(t, err, errNotLeading, "another server's question")
	expect.Equal(t, status.Of(n.ChangeMember(t.Context(), change.Change{Op: "remove", ID: 2})),
		status.NoLeader)
	expect.Equal(t, n.HandOver(t.Context()), errNotLeading)
	if tm == nil {
		return // a busy machine has cost the server its term
	}
	n.term.Store(tm)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err = tm.handOn(over, change.Change{Op: "remove", ID: 1})
	must.Fails(t, err, "raft has ended, and hands over")
	expect.Equal(t, status.Of(err), status.Interrupted)
	expect.Has(t, err.Error(), "hand over leadership before this server changes")
	for _, op := range []change.Op{change.Vote, change.Add} {
		expect.Fails(t, tm.change(t.Context(), change.Change{Op: op, ID: 2, Addr: "127.0.0.1:9"}, nil, 0),
			"%s", op)
	}
	is := &raft.Server{ID: "2", Address: "127.0.0.1:9"}
	for _, op := range []change.Op{change.Remove, change.Demote, change.Move} {
		expect.Fails(t, tm.change(t.Context(), change.Change{Op: op, ID: 2, Addr: "127.0.0.1:8"}, is, 0), "%s",
			op)
	}
	stale := change.Change{Op: "describe", ID: 2, By: 2, Since: 77}
	expect.Is(t, tm.change(t.Context(), stale, is, 0), ErrStale)
}

// A server that is far behind, or does not answer, cannot vote yet, and what it waits for is told.
func TestServerThatIsNotReadyToVote(t *testing.T) {
	t.Parallel()
	const ours = 10_000
	live, _ := start(t, Options{Peers: map[uint32]string{1: freeAddr(t)}})
	newAsker(t, live)
	waits := startWaiting(t, Options{ID: 4, Peers: map[uint32]string{4: freeAddr(t), 1: must.Refused(t)}})
	n := &Node{id: 9, fsm: applied.New().FSM, port: live.port, disk: memoryDisk(t, 9)}
	n.addresses = newAddresses(n)
	applied.At(n.fsm, ours, 1)
	for _, c := range []struct {
		name    string
		id      int
		addr    string
		applied uint64
		heard   bool
		want    []string
	}{
		{"near enough", 2, must.Refused(t), ours - status.EnoughToVote, true, nil},
		{"ahead", 2, must.Refused(t), ours + 5, true, nil},
		{"too far", 1, live.PeerAddr(), ours - status.EnoughToVote - 1, true,
			[]string{"server 1 is not ready: it has applied"}},
		{"silent", 1, live.PeerAddr(), ours, false, []string{"it has applied 0 of 10000 log entries"}},
		{"gone", 2, must.Refused(t), 0, true, []string{"server 2 is not ready: it does not answer at", "refused"}},
		{"it waits", 4, waits, 0, true, []string{"it has applied 0 of 10000 log entries, and says: "}},
	} {
		eventually(t, c.name, func() bool { // a busy machine may not answer in time
			tm := &term{n: n, ctx: t.Context()}
			l := &followers.Link{Greeting: peer.Greeting{From: uint32(c.id)}}
			if tm.links.Add(l); c.heard {
				l.SetApplied(c.applied)
			}
			err := tm.caughtUp(t.Context(), &raft.Server{ID: peer.ServerID(uint32(c.id)),
				Address: raft.ServerAddress(c.addr)})
			if c.want == nil {
				return err == nil
			}
			must.Fails(t, err, c.name)
			must.Equal(t, status.Of(err), status.NotReady, c.name)
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					return false
				}
			}
			return true
		})
	}
}

// A server that cannot be sure of its state ends once, and not while it is told to stop.
func TestServerEndsOnce(t *testing.T) {
	t.Parallel()
	first, second := errors.New("one"), errors.New("two")
	for _, closed := range []bool{false, true} {
		var told []error
		n := &Node{log: quietLog(t, 1), fsm: applied.New().FSM, o: Options{Observer: new(watcher),
			Fatal: func(err error) { told = append(told, err) }}}
		n.serving = serving.New(serving.Options{Clients: new(watcher), Log: n.log})
		n.closed.Store(closed)
		expect.OK(t, n.Err())
		n.die(first)
		n.die(second)
		if closed {
			if expect.Equal(t, len(told), 0, "a server that stops ends with %v: len(told)", told) {
				expect.OK(t, n.Err(), "a server that stops ends with %v", told)
			}
			continue
		}
		if expect.Equal(t, len(told), 1, "it ends with %v: len(told)", told) {
			expect.Equal(t, told[0], first, "it ends with %v: told[0]", told)
			expect.Equal(t, n.Err(), first, "it ends with %v: n.Err()", told)
		}
		ok, why := n.Serving()
		expect.That(t, !ok && why == "this server is stopping", "it serves: %v, %s", ok, why)
	}
}
