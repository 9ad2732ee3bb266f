package raftfsm

import (
	"errors"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Raft reports as a server's log only the durable entries. A server that is not in the configuration has no
// log.
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

	// The log has no entry left from before the snapshot.
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

// A server that does not lead asks the leader, if it knows one.
func TestServerThatKnowsNoLeaderToAsk(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	alone, _ := start(t, Options{})
	_, err := alone.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, errAlone)
	n, _ := start(t, Options{Peers: map[uint32]string{1: addr}, PeerListen: addr})
	newAsker(t, n)
	_, err = n.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, leading.ErrNotLeading, "it leads itself, by raft's word")
	n.Abort()
	_, err = n.askLeader(t.Context(), peer.Question{})
	expect.Equal(t, err, n.serving.NoLeader())
	err = n.changeMember(t.Context(), change.Change{Op: "remove", ID: 2}, false)
	expect.Equal(t, err, leading.ErrNotLeading, "another server's question")
	expect.Equal(t, status.Of(n.ChangeMember(t.Context(), change.Change{Op: "remove", ID: 2})),
		status.NoLeader)
	expect.Equal(t, n.HandOver(t.Context()), leading.ErrNotLeading)
}

// A server with a doubtful state ends once, and does not do so while it stops anyway.
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
