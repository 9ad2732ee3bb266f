package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server without others says that it has no peer port, no members to change and no server to hand over to.
func TestServerWithoutOthers(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{DataDir: t.TempDir()})
	newAsker(t, n)
	expect.Equal(t, n.PeerAddr(), "")
	expect.OK(t, n.Err())
	expect.Equal(t, n.ChangeMember(t.Context(), change.Change{Op: "remove", ID: 2}), errAlone)
	err := n.HandOver(t.Context())
	must.Fails(t, err, "it hands over to itself")
	expect.Has(t, err.Error(), "there is no other server to lead")
	must.OK(t, n.Snapshot())
	snapshots, log := n.DiskBytes()
	expect.That(t, snapshots > 0, "no bytes of snapshots")
	expect.That(t, log > 0, "no bytes of log")
	expect.Equal(t, len(n.Deadlines()), 1, "sessions with a deadline")
}

// A backup is restored only if the disk has room for it and the tree's limits allow it.
func TestBackupThatHasNoRoom(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 40)
	n, _ := start(t, Options{DataDir: t.TempDir(), MaxNodes: 100, MaxBytes: 1000,
		FreeBytes: func(string) (int64, error) { return free.Load(), nil }})
	expect.OK(t, n.Room(1<<30))
	err := n.Room(1 << 40)
	expect.That(t, errors.Is(err, upkeep.ErrNoRoom), "%v", err)
	must.Fails(t, err)
	expect.Has(t, err.Error(), "make room and try again")
	expect.OK(t, n.Fits(100, 1000))
	expect.Fails(t, n.Fits(101, 1000), "more nodes than are allowed")
	expect.Fails(t, n.Fits(100, 1001), "more bytes than are allowed")
	memory, _ := start(t, Options{})
	expect.OK(t, memory.Room(1<<50), "a server without a disk")
	expect.OK(t, memory.Fits(1<<30, 1<<50), "a server without bounds")
}

// The servers of a cluster answer questions about each other: deadlines, time left, addresses, zxids, and who
// follows.
func TestServersLookAtEachOther(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	one, two := c.nodes[lead], c.nodes[lead%3+1]
	expect.Equal(t, two.PeerAddr(), two.o.Peers[two.id])
	expect.That(t, two.Deadlines() == nil, "a follower knows deadlines")
	s := openSession(t, two, 30_000).Session
	_, known := two.TimeLeft(s.ID)
	expect.That(t, !known, "a follower knows the time left to a session")
	eventually(t, "the leader knows it", func() bool {
		left, known := one.TimeLeft(s.ID)
		return known && left > 0 && left <= 31*time.Second
	})
	expect.Equal(t, host{two}.AddrOf(one.id), one.PeerAddr())

	// A leader does not wait for a zxid that it has not given out. A follower waits for it.
	zxid := one.Zxid()
	expect.That(t, one.WaitZxid(t.Context(), zxid), "the leader lacks what it has applied")
	expect.That(t, !one.WaitZxid(t.Context(), zxid+1000), "the leader has what does not exist")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expect.That(t, !two.WaitZxid(gone, zxid+1000), "a follower has what does not exist")
	waited := make(chan bool, 1)
	go func() { waited <- two.WaitZxid(t.Context(), zxid+2) }()
	c.create(lead, "/awaited")
	c.create(lead, "/awaited-too")
	expect.That(t, <-waited, "the wait of a follower ends without the zxid")
	expect.That(t, two.Zxid() >= zxid+2, "the wait of a follower ends at zxid 0x%x, before 0x%x", two.Zxid(),
		zxid+2)

	standing := func(id uint32, addr string) string {
		there, follows := one.Standing(t.Context(), id, addr)
		return fmt.Sprint(there, " ", follows)
	}
	eventually(t, "the follower follows", func() bool {
		return standing(two.id, two.PeerAddr()) == "true true"
	})
	expect.Equal(t, standing(one.id, one.PeerAddr()), "true true", "itself")
	there, follows := two.Standing(t.Context(), one.id, one.PeerAddr())
	expect.That(t, there, "a follower does not reach its leader")
	expect.That(t, follows, "a follower does not see that its leader is part of the majority")
	expect.Equal(t, standing(two.id, must.Refused(t)), "false false", "a port that refuses")
	expect.Equal(t, standing(two.id, one.PeerAddr()), "false false", "the port of another server")
}

// A leader's process counts as gone only if its address refuses connections, because then no request has
// reached the leader. A server that does not lead refuses a request for the leader.
func TestLeaderWhoseProcessIsGone(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	one, two, three := c.nodes[lead], c.nodes[lead%3+1], c.nodes[(lead+1)%3+1]
	add := change.Change{Op: "add", ID: 9, Addr: must.Refused(t)}
	for _, q := range []peer.Question{{Member: &add}, {Probe: &peer.Place{ID: 9, Addr: add.Addr}},
		{Progress: true}} {
		_, err := host{two}.Answer(t.Context(), &q)
		expect.Is(t, err, leading.ErrNotLeading, "%+v", q)
	}
	told := must.Get(host{one}.Answer(t.Context(), &peer.Question{Progress: true}))(t)
	expect.Equal(t, len(told.All), 3, "members that the leader tells of")
	at := one.PeerAddr()
	gone := func(says string) bool {
		_, err := two.askAt(t.Context(), one.id, says, peer.Question{})
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	for _, says := range []string{at, must.Refused(t), three.PeerAddr()} {
		expect.That(t, !gone(says), "it lives, and says that it is at %s", says)
	}
	stop(t, one)
	expect.That(t, gone(at), "it is gone")
	expect.That(t, gone(must.Refused(t)), "it is gone, and said that it is elsewhere")
	expect.That(t, !gone(three.PeerAddr()), "a server is where it says")
	_, err := two.askLeader(t.Context(), peer.Question{Member: &add})
	if now, _ := two.raft.Known(); now == one.id || now == 0 {
		expect.Equal(t, status.Of(err), status.NoLeader, "%v", err)
	}
	eventually(t, "another leads, and answers", func() bool {
		_, err := two.Probe(t.Context(), 9, add.Addr)
		return err == nil
	})
}

// A server that does not answer gets no vote. A server with an impossible id or address cannot be a member.
func TestMembersThatCannotBe(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	nowhere := must.Refused(t)
	try := func(op change.Op, id uint32, addr string) error {
		return c.nodes[lead].ChangeMember(t.Context(), change.Change{Op: op, ID: id, Addr: addr})
	}
	expect.OK(t, try("add", 4, nowhere))
	for _, test := range []struct {
		err  error
		want string
		code status.Code
	}{
		{try("add", 0, "127.0.0.1:9"), "server id 0 is not a number from 1 to", ""},
		{try("add", config.ZeroID+1, "127.0.0.1:9"), "is not a number from 1 to", ""},
		{try("add", 5, nowhere), "server 4 is at " + nowhere, ""},
		{try("promote", 4, ""), "does not answer at " + nowhere, status.NotReady},
		{try("lead", 4, ""), "server 4 has no vote", ""},
		{try("add", 5, "nowhere"), "peer address \"nowhere\"", ""},
		{try("add", 4, "127.0.0.1:9"), "server 4 is a member already, at " + nowhere, status.IsMember},
		{try("promote", 5, ""), "server 5 is not a member; add it first", status.NotMember},
		{try("remove", 5, ""), "server 5 is not a member", status.NotMember},
		{try("lead", 5, ""), "server 5 is not a member", status.NotMember},
		{try("demote", 5, ""), "server 5 is not a member", status.NotMember},
		{try("dismiss", 4, ""), "unknown change", ""},
	} {
		must.Fails(t, test.err, test.want)
		expect.Has(t, test.err.Error(), test.want)
		expect.Equal(t, status.Of(test.err), test.code, test.want)
	}
	// A request for a change succeeds if the change has already been made.
	expect.OK(t, try("lead", uint32(lead), ""))
	expect.OK(t, try("promote", uint32(lead%3+1), ""))
	for _, m := range c.nodes[lead].all(t) {
		expect.That(t, m.Peer != "", "member %d has no address", m.ID)
		expect.Equal(t, m.Voter, m.ID != 4, "member %d has a vote", m.ID)
	}
}
