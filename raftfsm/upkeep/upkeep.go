// Package upkeep keeps what one server stores within bounds. It takes a snapshot when the log after the last
// snapshot is long, decides how much of the log is kept after a snapshot, and reports whether the disk and
// the tree have room for more.
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
	Dir string // a directory on the disk whose free space FreeBytes returns
	// Entries, Bytes and Interval bound how many requests and bytes the log gets, and how much time passes,
	// before the next snapshot.
	Entries  int64
	Bytes    int64
	Interval time.Duration
	// TrailingLogs and TrailingBytes bound the entries that stay in the log although a snapshot covers them.
	TrailingLogs  uint64
	TrailingBytes int64
	Forgets       bool  // whether the log will never be read again
	DiskReserve   int64 // see raftfsm.Options; negative: no reserve
	// MaxNodes and MaxBytes bound the tree; 0: no bound.
	MaxNodes int
	MaxBytes int64

	FreeBytes func(dir string) (int64, error)
	View      func(func(*state.State))       // runs a function on the state under its read lock
	Logged    func() (requests, bytes int64) // how much the log has grown since the last snapshot
	// returns, at the leader, the log index that each follower has applied
	Followers func() map[uint32]uint64
	Barrier   func()         // adds an entry to the log if this server leads
	Took      signal.Measure // receives how long each snapshot took
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

// Upkeep keeps what one server stores within bounds. Full and DiskLow may be called before Use.
type Upkeep struct {
	o    Options
	disk *disk.Disk
	raft Raft

	replace atomic.Bool            // whether the newest snapshot on the disk is damaged and must be replaced
	low     atomic.Pointer[string] // why the disk has too little free space; empty: there is enough
}

// New returns an Upkeep of a disk with enough free space.
func New(o Options) *Upkeep {
	u := &Upkeep{o: o}
	u.low.Store(new(string))
	return u
}

// Use sets the disk and the raft with which u works.
func (u *Upkeep) Use(d *disk.Disk, r Raft) { u.disk, u.raft = d, r }

// Snapshots takes a snapshot when the log after the last snapshot has grown long enough.
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
				u.o.Barrier() // raft takes at most one snapshot for each entry, so add another entry
			}
		}
		last = time.Now()
		took = last.Sub(begin)
	}
}

// After a snapshot, a server waits snapshotRest times the duration of that snapshot before the next one.
// Clients that fill the log must not make the server write snapshots of a large tree all the time.
const snapshotRest = 4

// due() reports whether a log of so many requests and bytes after the last snapshot is long enough for
// another snapshot. `size`, `ago` and `took` are the last snapshot's size, age and duration. Once the log has
// o.Bytes + size bytes, the server does not wait, so that the log stays in proportion to the state.
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

// Damaged is called when this server sends its newest snapshot to another server and finds that the snapshot
// is damaged. The state is still in memory, so Damaged makes the server write another snapshot at once. Then
// neither the other server nor the next start of this server needs the damaged snapshot.
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

// Entries stay in the log after a snapshot for servers that were away for a moment: without these entries,
// such a server would need the snapshot. Both their number and their bytes are bounded, because one entry can
// be as long as the longest request.

// trailingLeast is the number of entries that stay even if they are long. It must be well above the number of
// entries that a leader has under way: a server that holds an uncommitted entry and receives a snapshot needs
// the entries around that entry.
const trailingLeast = 64

// Up to trailingMost times TrailingBytes may stay for servers that follow and lag behind. For a server that
// lags further behind, a snapshot is faster.
const trailingMost = 4

// After a snapshot of at most trailingSmall bytes, the log keeps up to trailingSmall bytes of the entries
// that the snapshot covers. After a larger snapshot, the log keeps up to as many bytes of entries as the
// snapshot has. If a server needs more entries, sending it the snapshot is faster.
const trailingSmall = 16 << 20

// trailing() returns how many entries stay in the log although the next snapshot covers them.
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

// boundTrailing tells raft how many entries may stay in the log after a snapshot.
func (u *Upkeep) boundTrailing() error {
	conf := u.raft.ReloadableConfig()
	conf.TrailingLogs = u.trailing()
	return u.raft.ReloadConfig(conf)
}
