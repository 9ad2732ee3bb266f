package disk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/sim"
)

// The tests of this file end a server at each operation of its disk, by kill -9 or a loss of power. A script
// of elections, entries, snapshots, changes of members and restarts runs once for each operation, on a
// simulated disk. Then the server starts again, and its state must agree with its answers to other servers.

// The type crashed is a server whose disk ends at a chosen operation. What its process does after that
// changes nothing on the disk.
type crashed struct {
	t     *testing.T
	what  string
	power *sim.Disk
	ops   int // number of disk operations so far
	hit   sim.DiskOp
	over  chan struct{} // closed when the server ends

	d    *Disk
	r    *raft.Raft
	fsm  *ordered
	here raft.ServerAddress
	tr   *raft.InmemTransport

	mu    sync.Mutex
	told  told
	ended atomic.Bool
}

// The type told records the server's answers to other servers.
type told struct {
	term    uint64
	votes   map[uint64]string // the server that got the vote, by term
	last    uint64            // index of the last acknowledged entry
	lastIn  uint64            // the term of the last acknowledged entry
	applied uint64
	cluster string
}

// The type snapshotting is a state machine that makes its own snapshots.
type snapshotting struct{ *ordered }

func (s snapshotting) Snapshot() (raft.FSMSnapshot, error) {
	return ownSnapshot(s.at.Load()), nil
}

type ownSnapshot uint64

func (s ownSnapshot) Persist(sink raft.SnapshotSink) error {
	Own(sink)
	snap := state.New("c").StartSnapshot(state.Position{Index: uint64(s), Term: 2})
	if err := snap.Write(sink, func(read func()) { read() }); err != nil {
		return err
	}
	return sink.Close()
}

func (ownSnapshot) Release() {}

// open() opens the directory and starts raft on it.
func (c *crashed) open() error {
	c.mu.Lock()
	if c.ended.Load() {
		c.mu.Unlock()
		return errRefused
	}
	m := c.power.Mount()
	c.mu.Unlock()
	fatal := func(err error) {
		expect.That(c.t, c.ended.Load(), "%s: the server ends: %v", c.what, err)
	}
	d, err := Open(Options{Server: 1, Dir: "/var/lib/zlockd", LogStore: "wal", SnapshotRetain: 2,
		Rand: rand.Reader, Logger: quiet,
		Fatal: fatal, Files: &Files{FS: m, Stable: m.Keys(), Log: seglog.Options{FirstSize: 1024, FullSize: 2048,
			InTurn: true}}})
	if err != nil {
		return err
	}
	here, tr := raft.NewInmemTransportWithTimeout("", time.Minute)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger, conf.TrailingLogs = "1", hclog.NewNullLogger(), 2
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Hour, time.Hour // this server never stands for election
	fsm := new(ordered)
	r, err := raft.NewRaft(conf, snapshotting{fsm}, d.Log(), d.Stable(), d.Snapshots(state.CheckSnapshot,
		func(error) {}), tr)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	d.FollowApplied(r.AppliedIndex)
	c.d, c.r, c.fsm, c.here, c.tr = d, r, fsm, here, tr
	return nil
}

func (c *crashed) from(id string) (*raft.InmemTransport, raft.RPCHeader) {
	addr := raft.ServerAddress("addr-" + id)
	_, other := raft.NewInmemTransportWithTimeout(addr, time.Minute)
	other.Connect(c.here, c.tr)
	return other, raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: other.EncodePeer(raft.ServerID(id), addr)}
}

// note() records an answer to other servers, unless the server had ended by then.
func (c *crashed) note(f func(*told)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended.Load() {
		f(&c.told)
	}
}

func (c *crashed) vote(candidate string, term, last, lastTerm uint64) bool {
	tr, head := c.from(candidate)
	var resp raft.RequestVoteResponse
	req := &raft.RequestVoteRequest{RPCHeader: head, Term: term, LastLogIndex: last, LastLogTerm: lastTerm,
		LeadershipTransfer: true}
	if tr.RequestVote("1", c.here, req, &resp) != nil {
		return false
	}
	c.note(func(o *told) {
		o.term = max(o.term, resp.Term)
		if resp.Granted {
			o.votes[term] = candidate
		}
	})
	return resp.Granted
}

// members() returns the content of a configuration entry.
func members(ids ...string) []byte {
	var list []raft.Server
	for _, id := range ids {
		list = append(list, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress("addr-" + id)})
	}
	return raft.EncodeConfiguration(raft.Configuration{Servers: list})
}

// entries() sends the entries after the entry `prev`, up to the entry `to`, all of them committed. If
// `change` is not empty, the last entry changes the members.
func (c *crashed) entries(leader string, term, prev, prevTerm, to uint64, change ...string) bool {
	if !c.append(leader, term, prev, prevTerm, to, to, change...) {
		return false
	}
	c.note(func(o *told) { o.term, o.last, o.lastIn = max(o.term, term), to, term })
	return true
}

// append() sends the entries after the entry `prev`, up to the entry `to`, with a commit index.
func (c *crashed) append(leader string, term, prev, prevTerm, to, commit uint64, change ...string) bool {
	tr, head := c.from(leader)
	req := &raft.AppendEntriesRequest{RPCHeader: head, Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm,
		LeaderCommitIndex: commit}
	for i := prev + 1; i <= to; i++ {
		l := &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: entries.Begin(nil, 0)}
		entries.Seal(l.Data, int64(i))
		if len(change) > 0 && i == to {
			l.Type, l.Data = raft.LogConfiguration, members(change...)
		}
		req.Entries = append(req.Entries, l)
	}
	var resp raft.AppendEntriesResponse
	return tr.AppendEntries("1", c.here, req, &resp) == nil && resp.Success
}

func (c *crashed) snapshot(leader string, term, index uint64, content []byte) {
	tr, head := c.from(leader)
	var resp raft.InstallSnapshotResponse
	err := tr.InstallSnapshot("1", c.here, &raft.InstallSnapshotRequest{RPCHeader: head, SnapshotVersion: 1,
		Term:         term,
		LastLogIndex: index, LastLogTerm: 2, Configuration: members("1", "2", "3", "4"), ConfigurationIndex: 5,
		Size: int64(len(content))}, &resp, bytes.NewReader(content))
	if err == nil && resp.Success {
		c.note(func(o *told) { o.term, o.last, o.lastIn, o.applied = max(o.term, term), index, 2, index })
	}
}

// settle() waits until the server has applied an entry. So the operations have the same order in each run.
func (c *crashed) settle(index uint64) {
	for !c.ended.Load() && c.fsm.at.Load() < index {
		time.Sleep(100 * time.Microsecond)
	}
	c.note(func(o *told) { o.applied = index })
}

// script() is a short life of a server. Each step that other servers hear of is recorded.
func (c *crashed) script(sent []byte) {
	if c.open() != nil {
		return
	}
	id := c.d.Identity()
	id.Cluster = "c"
	if c.d.SaveIdentity(id) == nil {
		c.note(func(o *told) { o.cluster = "c" })
	}
	c.entries("2", 1, 0, 0, 1, "1", "2", "3")
	c.vote("3", 2, 1, 1)
	c.entries("3", 2, 1, 1, 6)
	c.settle(6)
	_ = c.r.Snapshot().Error()
	c.entries("3", 2, 6, 2, 9)
	c.settle(9)
	c.restart()
	c.vote("2", 4, 9, 2)
	c.entries("2", 4, 9, 2, 10, "1", "2", "3", "4")
	c.settle(9)
	c.append("2", 4, 10, 4, 22, 9) // entries that only this server has; the next leader has others
	c.snapshot("2", 5, sentIndex, sent)
	c.entries("2", 5, sentIndex, 2, 24)
	c.settle(24)
	c.vote("4", 6, 24, 5)
	_ = c.r.Snapshot().Error()
	c.restart()
	c.vote("3", 7, 24, 5)
	c.vote("4", 8, 24, 5)
}

func (c *crashed) restart() {
	err := errors.Join(c.r.Shutdown().Error(), c.d.Close(), c.open())
	if c.ended.Load() {
		runtime.Goexit()
	}
	expect.OK(c.t, err, "%s: it does not restart", c.what)
}

// run runs the script until its nth operation, and then starts the server again. `done` reports that the
// script ended before that operation.
func (c *crashed) run(nth int, powerLoss bool, sent []byte) (done bool) {
	c.over, c.told.votes = make(chan struct{}), map[uint64]string{}
	c.power.OnOp(func(op sim.DiskOp) error {
		if !op.Changes() || c.ended.Load() {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ops++; c.ops == nth {
			c.hit = op
			c.ended.Store(true)
			if powerLoss {
				c.power.PowerLoss()
			} else {
				c.power.Kill()
			}
			close(c.over)
		}
		return nil
	})
	c.power.LeaveGhosts()
	finished := make(chan struct{})
	go func() {
		c.script(sent)
		if c.r != nil {
			_ = errors.Join(c.r.Shutdown().Error(), c.d.Close())
		}
		close(finished)
	}()
	select {
	case <-finished:
		if !c.ended.Load() {
			return true
		}
	case <-c.over:
	}
	c.mu.Lock()
	was, hit := c.told, c.hit
	c.mu.Unlock()
	next := &crashed{t: c.t, power: c.power, what: fmt.Sprintf("%s of %s, the %d.; power lost: %v", hit.Kind,
		hit.Name, nth, powerLoss)}
	next.told.votes = map[uint64]string{}
	c.power.OnOp(nil)
	next.check(was)
	return false
}

// check() starts the server again and compares its state with its earlier answers to other servers.
func (c *crashed) check(was told) {
	if err := c.open(); err != nil {
		c.t.Errorf("%s: it is refused: %v", c.what, err)
		return
	}
	defer func() { _ = errors.Join(c.r.Shutdown().Error(), c.d.Close()) }()
	term, end, err := c.d.Promised()
	expect.OK(c.t, err, "%s", c.what)
	expect.That(c.t, term >= was.term, "%s: it is in term %d, and was in term %d", c.what, term, was.term)
	expect.That(c.t, end >= was.last, "%s: its log ends at entry %d, and it acknowledged entry %d", c.what, end,
		was.last)
	if is := c.d.Identity(); was.cluster != "" && is.Cluster != was.cluster {
		c.t.Errorf("%s: it has forgotten its cluster", c.what)
	}
	if newest := c.d.covered.newest(); was.last > newest {
		var l raft.Log
		if expect.OK(c.t, c.d.Log().GetLog(was.last, &l), "%s: acknowledged entry %d", c.what, was.last) {
			expect.Equal(c.t, l.Term, was.lastIn, "%s: term of the acknowledged entry %d", c.what, was.last)
		}
	}
	// Each candidate asks for a vote in each term, once with an empty log and once with a complete one.
	for in := uint64(1); in <= term; in++ {
		for _, candidate := range []string{"2", "3", "4"} {
			given, voted := was.votes[in]
			if end > 0 && c.vote(candidate, in, 0, 0) && (!voted || given != candidate) {
				c.t.Errorf("%s: %s, whose log is empty, gets a vote in term %d", c.what, candidate, in)
			}
			if voted && given != candidate && c.vote(candidate, in, 1000, term) {
				c.t.Errorf("%s: it voted for %s in term %d, and votes for %s", c.what, given, in, candidate)
			}
		}
	}
	// If a leader sent this snapshot because its log starts after it, it goes on with the entries after the
	// snapshot.
	next := term + 1
	if c.d.covered.newest() == sentIndex && was.last <= sentIndex &&
		!c.entries("2", next, sentIndex, 2, sentIndex+3) {
		c.t.Errorf("%s: it takes no entries behind the snapshot up to %d that it was sent", c.what, sentIndex)
		return
	}
	// Any other leader first finds the last entry that is in both logs. The server takes the entries after
	// that one.
	_, have, _ := c.d.Promised()
	var l raft.Log
	lastTerm := uint64(2) // if only a snapshot has entry `have`, its term is 2
	if have > 0 && c.d.Log().GetLog(have, &l) == nil {
		lastTerm = l.Term
	}
	if have == 0 {
		lastTerm = 0
	}
	if !c.entries("2", next, have, lastTerm, have+3) {
		c.t.Errorf("%s: it takes no entries behind %d", c.what, have)
		return
	}
	began := time.Now()
	for c.fsm.at.Load() < have+3 && time.Since(began) < time.Minute {
		time.Sleep(100 * time.Microsecond)
	}
	at := c.fsm.at.Load()
	expect.That(c.t, at >= have+3, "%s: it has applied %d, and not the new entry %d", c.what, at, have+3)
	expect.That(c.t, at >= was.applied, "%s: it has applied %d, and had applied %d before", c.what, at,
		was.applied)
	if bad := c.fsm.bad.Load(); bad != nil {
		c.t.Errorf("%s: %s", c.what, *bad)
	}
}

// sentIndex is the last entry of the snapshot that the script sends to the server.
const sentIndex = 20

func TestG2EveryCrashPointOfAServersDisk(t *testing.T) {
	sent := snapshotOf(t, sentIndex)
	points := 0
	for nth := 1; ; nth++ {
		done := false
		for seed := range uint64(4) {
			if testing.Short() && seed != uint64(nth)%4 {
				continue
			}
			c := &crashed{t: t, what: "no crash", power: sim.NewDisk(mathrand.New(mathrand.NewPCG(seed, uint64(nth))))}
			done = c.run(nth, seed > 0, sent)
			points++
		}
		if done {
			t.Logf("%d operations, %d crashes", nth-1, points)
			expect.That(t, nth >= 100, "only %d operations", nth-1)
			return
		}
	}
}
