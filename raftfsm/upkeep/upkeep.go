// Package upkeep keeps what one server stores within bounds. It takes a snapshot when the log after the
// last one is long, says how much of the log stays behind a snapshot, and whether there is room for more
// on the disk and in the tree.
package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Options configure an Upkeep.
type Options struct {
	Dir string // a directory on the disk that FreeBytes looks at
	// Entries, Bytes and Interval bound the log after a snapshot, in requests, bytes and time.
	Entries  int64
	Bytes    int64
	Interval time.Duration
	// TrailingLogs and TrailingBytes bound the log that a snapshot covers.
	TrailingLogs  uint64
	TrailingBytes int64
	Forgets       bool  // the log is never read again
	DiskReserve   int64 // negative: none
	// MaxNodes and MaxBytes bound the tree; 0: no bound.
	MaxNodes int
	MaxBytes int64

	FreeBytes func(dir string) (int64, error)
	View      func(func(*state.State))       // runs a function on the state under its read lock
	Logged    func() (requests, bytes int64) // how much the log has grown since the last snapshot
	Followers func() map[uint32]uint64       // at the leader, the log index that each follower has applied
	Barrier   func()                         // adds an entry to the log, if this server leads
	Took      signal.Measure                 // of snapshots
	Log       *slog.Logger
}

// Raft has the calls of raft that the upkeep needs. consensus.Raft implements it.
type Raft interface {
	LastIndex() uint64
	Beat(time.Duration) time.Duration
	Snapshot() raft.SnapshotFuture
	ReloadableConfig() raft.ReloadableConfig
	ReloadConfig(raft.ReloadableConfig) error
}

// Upkeep is the upkeep of one server. Full and DiskLow may be called before Use.
type Upkeep struct {
	o    Options
	disk *disk.Disk
	raft Raft

	replace atomic.Bool            // the newest snapshot on the disk is damaged
	low     atomic.Pointer[string] // why the disk is low; empty: it is not
}

// New returns an Upkeep of a disk that is not low.
func New(o Options) *Upkeep {
	u := &Upkeep{o: o}
	u.low.Store(new(string))
	return u
}

// Use sets the disk and the raft that u looks after.
func (u *Upkeep) Use(d *disk.Disk, r Raft) { u.disk, u.raft = d, r }

// Snapshots takes snapshots when the log after the last one has grown long
// enough.
func (u *Upkeep) Snapshots(ctx context.Context) {
	const look = 250 * time.Millisecond
	last, took := time.Now(), time.Duration(0)
	for signal.Pause(ctx, u.raft.Beat(look)) {
		requests, bytes := u.o.Logged()
		size, _ := u.disk.NewestSnapshot()
		if !u.replace.Load() && !u.o.due(requests, bytes, size, time.Since(last), took) {
			continue
		}
		begin := time.Now()
		if err := u.Snapshot(); err != nil {
			u.o.Log.Debug("no snapshot taken", "err", err)
			if u.replace.Load() {
				u.o.Barrier() // raft takes one snapshot at most at an entry: make another entry
			}
		}
		last = time.Now()
		took = last.Sub(begin)
	}
}

// snapshotRest is how many times the duration of the last snapshot a server waits before the next:
// clients that fill the log must not keep it writing snapshots of a large tree all the time.
const snapshotRest = 4

// due reports whether a log of so many requests and bytes after the last snapshot is long
// enough for another. size, ago and took are the last snapshot's size, age and duration. The server
// does not rest when the log has grown by that size beyond Bytes: the files stay in
// proportion to the state.
func (o *Options) due(requests, bytes, size int64, ago, took time.Duration) bool {
	switch {
	case bytes >= o.Bytes+size:
		return true
	case ago < snapshotRest*took:
		return false
	}
	return requests >= o.Entries || bytes >= o.Bytes ||
		o.Interval > 0 && requests > 0 && ago >= o.Interval
}

// Damaged is called when the newest snapshot on our disk turns out to be damaged while it
// is sent to another server. Its content is in memory: the next snapshot is written at once, so
// that neither that server nor this server's next start needs the damaged one.
func (u *Upkeep) Damaged(err error) {
	u.o.Log.Error("the newest snapshot on this server's disk is damaged; writing another", "err", err)
	u.replace.Store(true)
}

// Snapshot writes a snapshot now.
func (u *Upkeep) Snapshot() error {
	start := time.Now()
	if err := u.boundTrailing(); err != nil {
		return err
	}
	err := u.raft.Snapshot().Error()
	if err == nil {
		var zxid int64
		u.o.View(func(s *state.State) { zxid = s.Zxid() })
		u.replace.Store(false)
		u.o.Took.Took(time.Since(start))
		u.o.Log.Info("snapshot taken", "zxid", fmt.Sprintf("0x%x", zxid),
			"took", time.Since(start).Round(time.Millisecond))
	}
	return err
}

// Entries stay in the log after a snapshot for servers that were away for a moment: without these
// entries they would have to be sent the snapshot. They are bounded in entries and in bytes, for an
// entry can be as long as a request may be.

// trailingLeast is how many entries stay however long they are. It must be well
// above what a leader has under way: a server that holds an entry that was never
// committed, and is sent a snapshot, needs the entries around that place.
const trailingLeast = 64

// trailingMost times TrailingBytes may stay for servers that follow and lag behind. For a server that lags
// further behind, a snapshot is faster.
const trailingMost = 4

// trailingSmall is how many bytes of entries stay that a small snapshot covers. For a larger snapshot, as
// many bytes of entries stay as the snapshot has. If a server needs more, sending it the snapshot is faster.
const trailingSmall = 16 << 20

// trailing returns how many entries stay behind the next snapshot.
func (u *Upkeep) trailing() uint64 {
	if u.o.Forgets {
		return min(trailingLeast, u.o.TrailingLogs)
	}
	most := u.o.TrailingLogs
	last := u.raft.LastIndex()
	kept := func(bytes int64) uint64 {
		from := u.disk.LogWithin(bytes)
		if from == 0 {
			return most // the log store does not report sizes
		}
		return last + 1 - min(from, last+1)
	}
	size, _ := u.disk.NewestSnapshot()
	keep := kept(min(u.o.TrailingBytes, max(size, trailingSmall)))
	var behind []uint64
	for _, at := range u.o.Followers() {
		behind = append(behind, last-min(at, last))
	}
	if len(behind) > 0 {
		keep = max(keep, min(slices.Max(behind)+trailingLeast, kept(trailingMost*u.o.TrailingBytes)))
	}
	return min(max(keep, trailingLeast), most)
}

// boundTrailing tells raft how much of the log may stay.
func (u *Upkeep) boundTrailing() error {
	conf := u.raft.ReloadableConfig()
	conf.TrailingLogs = u.trailing()
	return u.raft.ReloadConfig(conf)
}
