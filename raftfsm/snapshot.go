package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// snapshots takes snapshots when the log after the last one has grown long
// enough.
func (n *Node) snapshots() {
	const look = 250 * time.Millisecond
	last, took := time.Now(), time.Duration(0)
	for signal.Pause(n.ctx, n.raft.Beat(look)) {
		c := &n.fsm.counted
		size, _ := n.disk.NewestSnapshot()
		if !n.replaceSnapshot.Load() && !n.o.snapshotDue(c.requests.Load(), c.bytes.Load(), size,
			time.Since(last), took) {
			continue
		}
		begin := time.Now()
		if err := n.Snapshot(); err != nil {
			n.log.Debug("no snapshot taken", "err", err)
			if n.replaceSnapshot.Load() {
				n.addBarrier() // raft takes only one snapshot at a log entry
			}
		}
		last = time.Now()
		took = last.Sub(begin)
	}
}

// snapshotRest is how many times the duration of the last snapshot a server waits before the next:
// clients that fill the log must not keep it writing snapshots of a large tree all the time.
const snapshotRest = 4

// snapshotDue reports whether a log of so many requests and bytes after the last snapshot is long
// enough for another. size, ago and took are the last snapshot's size, age and duration. The server
// does not rest when the log has grown by that size beyond SnapshotBytes: the files stay in
// proportion to the state.
func (o *Options) snapshotDue(requests, bytes, size int64, ago, took time.Duration) bool {
	switch {
	case bytes >= o.SnapshotBytes+size:
		return true
	case ago < snapshotRest*took:
		return false
	}
	return requests >= o.SnapshotEntries || bytes >= o.SnapshotBytes ||
		o.SnapshotInterval > 0 && requests > 0 && ago >= o.SnapshotInterval
}

// snapshotDamaged is called when the newest snapshot on our disk turns out to be damaged while it
// is sent to another server. Its content is in memory: the next snapshot is written at once, so
// that neither that server nor this server's next start needs the damaged one.
func (n *Node) snapshotDamaged(err error) {
	n.log.Error("the newest snapshot on this server's disk is damaged; writing another", "err", err)
	n.replaceSnapshot.Store(true)
}

// Snapshot writes a snapshot now.
func (n *Node) Snapshot() error {
	start := time.Now()
	if err := n.boundTrailing(); err != nil {
		return err
	}
	err := n.raft.Snapshot().Error()
	if err == nil {
		n.replaceSnapshot.Store(false)
		n.o.Measures.SnapshotWriteTime.Took(time.Since(start))
		n.log.Info("snapshot taken", "zxid", fmt.Sprintf("0x%x", n.Zxid()),
			"took", time.Since(start).Round(time.Millisecond))
	}
	return err
}

// Snapshot implements raft.FSM. It only notes where the state stands; the
// nodes are read later, while writes go on.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.dead.Load() {
		return nil, errors.New("this server has stopped")
	}
	select {
	case f.walking <- struct{}{}:
	default:
		return nil, errors.New("a backup is being taken")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, _, open := f.state.Staged(); open { // what is kept beside the state would be lost
		<-f.walking
		return nil, errors.New("a restore is under way")
	}
	return f.hold(), nil
}

// hold begins a snapshot of the state as it is now. The caller holds the state lock and the token of
// walking.
func (f *fsm) hold() *fsmSnapshot {
	at := state.Position{Index: f.index.Load(), Term: f.term.Load()}
	return &fsmSnapshot{f: f, state: f.state.StartSnapshot(at), requests: f.counted.requests.Load(),
		bytes: f.counted.bytes.Load()}
}

// fsmSnapshot is a point in time of the state, being written.
type fsmSnapshot struct {
	f               *fsm
	state           *state.Snapshot
	requests, bytes int64             // that fsm.counted counted at that point
	sink            raft.SnapshotSink // nil until it is written
	reading         time.Duration     // since the last rest
}

// Persist implements raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	s.sink = sink
	disk.Own(sink)
	if !disk.Forgets(sink) {
		if err := s.state.Write(disk.Until(s.f.ctx, sink), s.read); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := sink.Close(); err != nil {
		return err
	}
	// The entries that the snapshot covers no longer count towards the next one. Until Release no
	// snapshot of another server is installed, so both counters still count what they counted when it
	// was begun.
	s.f.counted.requests.Add(-s.requests)
	s.f.counted.bytes.Add(-s.bytes)
	if !disk.Forgets(sink) {
		s.f.noteSnapshot(s.state.Zxid(), time.Now())
	}
	return nil
}

// readRest is how long reads of a snapshot last together before its writer rests as long. So a snapshot
// takes at most half of a processor from requests, and half of the state lock.
const readRest = time.Millisecond

func (s *fsmSnapshot) read(fn func()) {
	begin := time.Now()
	func() {
		s.f.mu.RLock()
		defer s.f.mu.RUnlock()
		fn()
	}()
	if s.reading += time.Since(begin); s.reading >= readRest {
		time.Sleep(min(s.reading, 50*readRest)) // no longer, where the process stood still
		s.reading = 0
	}
}

// Release implements raft.FSMSnapshot. raft calls it when it has noted the snapshot and cut its log.
func (s *fsmSnapshot) Release() {
	disk.Done(s.sink)
	s.f.mu.Lock()
	s.state.Close()
	s.f.mu.Unlock()
	<-s.f.walking
}

// Backup is the state at one moment, to be written once while writes go on.
type Backup struct {
	Zxid int64
	ACLs [][]jute.ACL // every one that a node in it can have

	snap *fsmSnapshot
}

// Backup takes hold of the state as it is now. It waits, as long as ctx allows,
// for a snapshot or another backup that is under way. The caller closes it.
func (n *Node) Backup(ctx context.Context) (*Backup, error) {
	f := n.fsm
	select {
	case f.walking <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("a snapshot or another backup is being written; try again")
	}
	if f.dead.Load() {
		<-f.walking
		return nil, errors.New("this server has stopped")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	snap := f.hold()
	return &Backup{Zxid: snap.state.Zxid(), ACLs: f.state.Tree().ACLs(), snap: snap}, nil
}

// Write writes the backup. No writer is kept waiting for more than some nodes.
func (b *Backup) Write(w io.Writer) error { return b.snap.state.Write(w, b.snap.read) }

// Close releases the state.
func (b *Backup) Close() { b.snap.Release() }

// Entries stay in the log after a snapshot for servers that were away for a moment: without these
// entries they would have to be sent the snapshot. They are bounded in entries and in bytes, for an
// entry can be as long as a request may be.

// trailingLeast is how many entries stay however long they are. It must be well
// above what a leader has under way: a server that holds an entry that was never
// committed, and is sent a snapshot, needs the entries around that place.
const trailingLeast = 64

// trailingMost times TrailingBytes may stay for servers that follow and are
// behind; one further behind is better served by a snapshot.
const trailingMost = 4

// trailingSmall is how many bytes of entries are kept that a small snapshot covers. For a larger
// snapshot as many bytes of the log are kept as the snapshot has: a server that needs more is sent the
// snapshot sooner.
const trailingSmall = 16 << 20

// trailing returns how many entries stay behind the next snapshot.
func (n *Node) trailing() uint64 {
	if n.o.forgets() {
		return min(trailingLeast, n.o.TrailingLogs)
	}
	most := n.o.TrailingLogs
	last := n.raft.LastIndex()
	kept := func(bytes int64) uint64 {
		from := n.disk.LogWithin(bytes)
		if from == 0 {
			return most // the log store cannot tell
		}
		return last + 1 - min(from, last+1)
	}
	size, _ := n.disk.NewestSnapshot()
	keep := kept(min(n.o.TrailingBytes, max(size, trailingSmall)))
	if t := n.term.Load(); t != nil {
		var behind []uint64
		for _, at := range t.progress() {
			behind = append(behind, last-min(at, last))
		}
		if len(behind) > 0 {
			keep = max(keep, min(slices.Max(behind)+trailingLeast, kept(trailingMost*n.o.TrailingBytes)))
		}
	}
	return min(max(keep, trailingLeast), most)
}

// boundTrailing tells raft how much of the log may stay.
func (n *Node) boundTrailing() error {
	conf := n.raft.ReloadableConfig()
	conf.TrailingLogs = n.trailing()
	return n.raft.ReloadConfig(conf)
}
