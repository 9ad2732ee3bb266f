package raftfsm

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The leader hands leadership to another server, and no session ends. A server that does not lead cannot hand
// over.
func TestLeadershipIsHandedOver(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	c.create(lead, "/before")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	expect.Equal(t, c.nodes[lead%3+1].HandOver(ctx), leading.ErrNotLeading, "a follower hands over")
	must.OK(t, c.nodes[lead].HandOver(ctx))
	eventually(t, "another leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	for id := 1; id <= 3; id++ {
		eventually(t, "it serves", c.seen[id].serving.Load)
		eventually(t, "what was written before", func() bool { return c.has(id, "/before") })
	}
}

// A leader without followers stops at once. Raft by itself would wait for the followers until an election is
// over.
func TestLeaderWithoutFollowersStopsAtOnce(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, func(o *Options) {
		o.HeartbeatTimeout, o.MinSessionTimeout = 5*time.Minute, 6*time.Minute
	})
	lead := c.mustLead()
	s := openSession(t, c.nodes[lead], int32(10*time.Minute/time.Millisecond)).Session
	c.nodes[lead%3+1].Abort()
	c.nodes[(lead+1)%3+1].Abort()
	tm := c.nodes[lead].leader.Term()
	eventually(t, "the links end", func() bool { return len(tm.Far()) == 0 })
	w := &call{make(chan state.Outcome, 1)} // the entry of this request is missing at the other servers
	must.OK(t, c.nodes[lead].Propose(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
		Body: createBody("/x", 0)}, w))
	eventually(t, "the entry is on its way", func() bool {
		return c.nodes[lead].raft.LastIndex() > c.nodes[lead].raft.CommitIndex()
	})
	stop(t, c.nodes[lead])
	must.That(t, (<-w.ch).Unknown, "the outcome is known")
}

// A server may still take a restarted server for the leader. The restarted server then says that it does not
// lead. The heartbeat timeout of this test is so long that the server would not notice this by itself.
func TestLeaderThatWasStartedAgainIsForgotten(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) {
		o.HeartbeatTimeout, o.MinSessionTimeout = 5*time.Minute, 6*time.Minute
	})
	lead := c.mustLead()
	down, stays := lead%3+1, (lead+1)%3+1
	c.create(lead, "/before")
	eventually(t, "the link stands", func() bool { return c.nodes[stays].linked.Load() == uint32(lead) })
	eventually(t, "a link that ends at once counts as a failure", func() bool {
		return !c.nodes[stays].followLeader(uint32(down), c.opts[down].Peers[uint32(down)])
	})
	c.nodes[down].Abort() // the remaining server is not a majority
	c.nodes[lead].Abort()
	c.start(lead)
	t.Cleanup(func() { // a leader that stops would wait for another server
		c.nodes[lead].Abort()
		c.nodes[stays].Abort()
	})
	next := c.mustLead()
	eventually(t, "it serves", c.seen[next].serving.Load)
	must.That(t, c.has(next, "/before"), "an acknowledged write is lost")
}

// A leader accepts no requests during a hand-over. If raft's replicator for the successor is gone, the
// hand-over never ends. Then another server must lead.
func TestLeaderThatHandsOverForEverIsReplaced(t *testing.T) {
	t.Parallel()
	var still stillNet
	var log must.Text
	c := newTrio(t, false, func(o *Options) {
		brisk(o)
		still.tune(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	lead := c.mustLead()
	at := func(i int) int { return (lead+i-1)%3 + 1 }
	one, two, three := c.nodes[lead], c.nodes[at(1)], c.nodes[at(2)]
	addr := one.o.Peers[three.id]
	still.takesNothing(func(p peer.Purpose, to string) bool { return to == addr && p == peer.Raft })
	t.Cleanup(func() { still.takesNothing(func(peer.Purpose, string) bool { return false }) })
	c.create(lead, "/missed")
	elect := func(n *Node, done func() bool) {
		for end := time.Now().Add(time.Minute); !done(); {
			must.That(t, time.Now().Before(end), "server %d is not elected", n.id)
			_ = n.raft.Stand()
			for again := time.Now().Add(2 * time.Second); !done() && time.Now().Before(again); {
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
	stuck := func() bool { return strings.Contains(log.String(), "raft does not complete the hand-over") }
	for try := 1; !stuck(); try++ { // tried again, because on a busy machine the replicator may not be stuck
		must.That(t, try < 10, "it is not stuck")
		for range 2 { // raft takes the second hand-over when it has noticed that the first one failed
			eventually(t, "an attempt fails", func() bool {
				err := one.raft.LeadershipTransferToServer(peer.ServerID(three.id), raft.ServerAddress(addr)).Error()
				return err != nil && err != raft.ErrLeadershipTransferInProgress
			})
		}
		elect(two, func() bool { return c.leader() == at(1) })
		elect(one, func() bool { return stuck() || one.leader.Term() != nil })
	}
	eventually(t, "another leads instead", func() bool { return c.leader() == at(1) })
	eventually(t, "the first serves", c.seen[lead].serving.Load)
	c.create(lead, "/after")
}

// frozenLog is a log whose writes hang between freeze and thaw.
type frozenLog struct {
	raft.LogStore
	frozen chan struct{} // closed: writes hang
	thaw   chan struct{}
	hangs  atomic.Bool // whether a write hangs now
}

func (l *frozenLog) StoreLogs(list []*raft.Log) error {
	select {
	case <-l.frozen:
		l.hangs.Store(true)
		<-l.thaw
	default:
	}
	return l.LogStore.StoreLogs(list)
}

func (l *frozenLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// A server whose disk hangs stops within the given time.
func TestServerWithAFrozenDiskStopsInTime(t *testing.T) {
	t.Parallel()
	stores := disk.NewMemoryStores(true)
	l := &frozenLog{LogStore: stores.Log, frozen: make(chan struct{}), thaw: make(chan struct{})}
	stores.Log = l
	n, w := start(t, Options{Stores: stores})
	eventually(t, "serving", w.serving.Load)
	s := openSession(t, n, 30_000).Session
	close(l.frozen)
	defer close(l.thaw)
	c := &call{make(chan state.Outcome, 1)}
	must.OK(t, n.Propose(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/x", 0)},
		c))
	eventually(t, "the write hangs", l.hangs.Load)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.Close(ctx) }()
	select {
	case err := <-done:
		expect.Fails(t, err, "its disk hangs, and it has stopped in order")
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
	expect.OK(t, n.Close(t.Context()), "told to stop once more")
}

// slowSnapshots is a store whose first write waits until the server stops. Each later write takes a while.
type slowSnapshots struct {
	raft.SnapshotStore
	began chan struct{}
	stops func() bool
	whole *atomic.Bool // set when a snapshot was written to the end
}

func (s slowSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, c, ci, t)
	return slowSink{sink, s}, err
}

type slowSink struct {
	raft.SnapshotSink
	s slowSnapshots
}

func (s slowSink) Write(b []byte) (int, error) {
	select {
	case s.s.began <- struct{}{}:
	default:
	}
	for end := time.Now().Add(time.Minute); !s.s.stops() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // so that the rest of the snapshot takes long
	return s.SnapshotSink.Write(b)
}

func (s slowSink) Close() error {
	s.s.whole.Store(true)
	return s.SnapshotSink.Close()
}

// A server that is told to stop does not first write the rest of a large snapshot.
func TestServerStopsInTheMiddleOfASnapshot(t *testing.T) {
	t.Parallel()
	stores, began := disk.NewMemoryStores(false), make(chan struct{}, 1)
	var stops, whole atomic.Bool
	stores.Snapshots = slowSnapshots{stores.Snapshots, began, stops.Load, &whole}
	n, w := start(t, Options{Stores: stores})
	eventually(t, "serving", w.serving.Load)
	openSession(t, n, 30_000)
	go n.Snapshot() //nolint:errcheck // the stop interrupts the snapshot
	<-began
	go func() {
		<-n.ctx.Done()
		stops.Store(true)
	}()
	stop(t, n)
	expect.That(t, !whole.Load(), "it writes its snapshot to the end first")
}

// A leader that is told to stop does not wait for a server that reads nothing.
func TestLeaderStopsBesideAServerThatStandsStill(t *testing.T) {
	t.Parallel()
	var still stillNet
	c := newTrio(t, false, still.tune)
	lead := c.mustLead()
	addr := c.opts[lead].Peers[uint32(lead%3+1)]
	var waits atomic.Bool
	still.takesNothing(func(p peer.Purpose, to string) bool {
		is := p == peer.Raft && to == addr
		if is {
			waits.Store(true)
		}
		return is
	})
	t.Cleanup(func() { still.takesNothing(func(peer.Purpose, string) bool { return false }) })
	c.create(lead, "/x")
	eventually(t, "a message waits", waits.Load)
	stop(t, c.nodes[lead])
}

// If a server crashes in its first start, raft may have a term but no first entry. The next start stores the
// entry.
func TestCrashInTheFirstStartIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := must.Get(disk.Open(disk.Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 2, Rand: zeros{},
		Logger: quietLog(t, 1), Fatal: func(err error) { t.Error(err) }}))(t)
	id := d.Identity()
	id.Cluster, id.Incarnations = "c", map[uint32]string{1: id.Incarnation}
	must.OK(t, d.SaveIdentity(id))
	must.OK(t, d.Stable().SetUint64([]byte("CurrentTerm"), 1))
	must.OK(t, d.Close())
	n, w := start(t, Options{DataDir: dir})
	eventually(t, "serving", w.serving.Load)
	openSession(t, n, 10_000)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// backUp stops a server, copies its data directory and starts it again.
func (c *trio) backUp(id int) (copied string) {
	stop(c.t, c.nodes[id])
	copied = filepath.Join(c.t.TempDir(), "copy")
	c.copyData(copied, c.opts[id].DataDir)
	c.start(id)
	eventually(c.t, "it serves again", c.seen[id].serving.Load)
	return copied
}

func (c *trio) copyData(to, from string) {
	c.t.Helper()
	must.OK(c.t, os.RemoveAll(to))
	must.OK(c.t, os.CopyFS(to, os.DirFS(from)))
}

// knows() waits until the server `witness` has noted that the server `id` was started at least `starts`
// times.
func (c *trio) knows(witness, id int, starts uint64) {
	eventually(c.t, "it is known how often the server was started", func() bool {
		return c.nodes[witness].promises.Of(c.nodes[id].disk.Identity().Incarnation).Start >= starts
	})
}

// An operator puts back an old copy of a data directory, although the server has acknowledged more since
// then. If another server that knows this runs, the start is refused at once.
func TestR6OldCopyOfTheSameTermIsRefused(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	b := lead%3 + 1
	copied := c.backUp(b)
	c.knows(lead, b, 2)
	stop(t, c.nodes[b])
	c.copyData(c.opts[b].DataDir, copied)
	o := c.opts[b]
	o.Logger = quietLog(t, o.ID)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := Start(ctx, o)
	if err == nil {
		n.Abort()
	}
	must.Fails(t, err, "a start from an old copy")
	must.Has(t, err.Error(), "old copy")
}

// A server starts from an old copy of its directory, while the servers that could warn it are away. Then
// another server comes back. Both lack a write that was acknowledged, so the first one must not vote for it.
func TestR6OldCopyDoesNotVote(t *testing.T) {
	t.Parallel()
	for range 10 {
		done := false
		if !t.Run("", func(t *testing.T) { done = oldCopyDoesNotVote(t) }) || done {
			return
		}
	}
	t.Fatal("leadership moved each time")
}

// oldCopyDoesNotVote returns false if leadership moved during the attempt, which then shows nothing.
func oldCopyDoesNotVote(t *testing.T) bool {
	c := newTrio(t, true, nil)
	a := c.mustLead()
	b, d := a%3+1, (a+1)%3+1
	copied := c.backUp(b)
	c.knows(d, b, 2)
	stop(t, c.nodes[d])
	if c.leader() != a {
		return false
	}
	c.create(a, "/kept") // on servers a and b
	stop(t, c.nodes[b])
	c.nodes[a].Abort()
	c.copyData(c.opts[b].DataDir, copied)
	died := make(chan error, 1)
	c.opts[b].Fatal = func(err error) { died <- err }
	c.start(b)
	c.start(d)
	select {
	case err := <-died:
		expect.Has(t, err.Error(), "old copy", "it ended because %v", err)
	case <-time.After(time.Minute):
		t.Error("the old copy was not noticed")
	}
	c.nodes[b].Abort()
	must.Equal(t, c.leader(), 0, "a server leads without the write")
	c.start(a)
	eventually(t, "serving", func() bool { return c.seen[a].serving.Load() && c.seen[d].serving.Load() })
	expect.That(t, c.has(d, "/kept"), "an acknowledged write is lost")
	return true
}

func TestR6DirectoryThatIsBehindWhatItHasShown(t *testing.T) {
	t.Parallel()
	shown := peer.Shown{Start: 3, Life: "c", Term: 5, Index: 100}
	for _, tc := range []struct {
		name string
		now  peer.Shown
		end  uint64
		old  bool
	}{
		{"the same life", shown, 100, false},
		{"the same life, by a word that was overtaken", peer.Shown{Start: 3, Life: "c", Term: 4, Index: 90}, 90,
			false},
		{"the next life", peer.Shown{Start: 4, Life: "d", Term: 5}, 100, false},
		{"a copy of the life before", peer.Shown{Start: 3, Life: "x", Term: 5}, 100, true},
		{"a copy of an earlier life", peer.Shown{Start: 2, Life: "x", Term: 5}, 100, true},
		{"a copy made while it ran: the term", peer.Shown{Start: 4, Life: "d", Term: 4}, 100, true},
		{"a copy made while it ran: the log", peer.Shown{Start: 4, Life: "d", Term: 5}, 99, true},
	} {
		expect.Equal(t, tc.now.Behind(shown, tc.end) != "", tc.old, "%s", tc.name)
	}
	expect.Equal(t, shown.Behind(peer.Shown{}, 0), "", "behind one who knows nothing")
}

// A server refuses to start because of a damaged file. It does not announce this start to other servers. So
// it can start again with the undamaged file, and its directory does not count as an old copy.
func TestR6RefusedStartIsNotAnnounced(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	b := c.leader()%3 + 1
	must.OK(t, c.nodes[b].Snapshot())
	stop(t, c.nodes[b])
	dir := c.opts[b].DataDir
	good := t.TempDir()
	c.copyData(good, dir)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snap"))
	must.OK(t, err)
	must.That(t, len(files) != 0, "there is no snapshot to damage")
	for _, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		data[len(data)/4] ^= 1
		must.OK(t, os.WriteFile(file, data, 0o600))
	}
	o := c.opts[b]
	o.Logger, o.Fatal = quietLog(t, o.ID), func(error) {}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if n, err := Start(ctx, o); err == nil {
		n.Abort()
		t.Fatal("the damage is not noticed")
	}
	c.copyData(dir, good)
	c.start(b)
	eventually(t, "it serves again", c.seen[b].serving.Load)
}
