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

// The last entry that raft reports is the last durable entry. Lacks() returns true only for a server that is
// not in raft's configuration.
func TestWhatRaftKnowsOfAServer(t *testing.T) {
	t.Parallel()
	n := ended(t, Options{DataDir: t.TempDir(), DiskReserve: -1})
	term, index := n.raft.LastEntry()
	sure := min(n.raft.LastIndex(), n.disk.Durable())
	expect.Equal(t, term, n.raft.CurrentTerm(), "term of the last entry")
	expect.Equal(t, index, sure, "the last durable entry")
	expect.That(t, !n.raft.Lacks(1), "server 1 is in the configuration, and raft lacks it")
	expect.That(t, n.raft.Lacks(9), "server 9 is not in the configuration, and raft has it")
	list, config := n.raft.Configuration()
	expect.Equal(t, len(list), 1, "servers in the configuration %v", list)
	expect.Equal(t, config, 1, "entry of the configuration")

	// When the log is empty after a snapshot, the last entry is the snapshot's.
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
	expect.That(t, term > 0, "the last entry has no term")
	expect.That(t, index >= last, "the last entry is %d, want %d or later", index, last)
}

// A server that needs the leader and knows none returns an error that says why.
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

// A server whose state cannot be trusted calls Fatal once. A server that is stopping does not call Fatal.
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
			expect.Equal(t, len(told), 0, "ends of a server that is stopping: %v", told)
			expect.OK(t, n.Err(), "a server that is stopping")
			continue
		}
		if expect.Equal(t, len(told), 1, "ends of the server: %v", told) {
			expect.Equal(t, told[0], first, "the cause of the end")
			expect.Equal(t, n.Err(), first, "the error of the server")
		}
		ok, why := n.Serving()
		expect.That(t, !ok, "a server that has ended serves")
		expect.Equal(t, why, "this server is stopping")
	}
}
