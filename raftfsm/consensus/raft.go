// Package consensus is raft as the rest of a server sees it: started on what the disk holds, with its futures
// awaited, its errors coded, its leadership told from one to the next, and its lines in our log.
package consensus

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Raft is raft as the rest of a server sees it.
type Raft struct {
	*elect.Raft
	disk *disk.Disk
}

// Options are what Start needs.
type Options struct {
	ID               uint32
	Self             raft.ServerAddress // by which raft knows this server
	HeartbeatTimeout time.Duration
	TrailingLogs     uint64
	Disk             *disk.Disk
	Port             *peer.Port            // nil in a cluster of one
	Verify           func(io.Reader) error // of snapshots that come in
	Damaged          func(error)           // is told of a snapshot found damaged on the disk
	Leadership       *Leadership           // hears of leadership gained and lost
	Log              *slog.Logger
	Closed           *atomic.Bool // this server is told to stop
}

// Start starts raft on what the disk holds. On an empty disk it begins with the
// configuration bootstrap, or, if that is nil, waits to be told one.
func Start(o Options, f raft.FSM, bootstrap *raft.Configuration) (*Raft, error) {
	d, port := o.Disk, o.Port
	r := &Raft{&elect.Raft{ID: o.ID, Self: o.Self, Began: time.Now()}, d}
	conf := o.config()
	conf.NotifyCh, conf.Logger = o.Leadership.notes, hcLogger(o.Log, o.Closed)
	logs, stable, snaps := d.Log(), d.Stable(), d.Snapshots(o.Verify, o.Damaged)
	var err error
	if port == nil {
		// Only for the one message that this server sends itself; see elect.Raft.
		_, t := raft.NewInmemTransport(r.Self)
		t.Connect(r.Self, t)
		r.Trans = t
	} else {
		r.Trans = port.Transport(d.Durable)
		// Only followers are sent entries from the log, and those that keep up are
		// sent the newest.
		if logs, err = newLogCache(logs); err != nil {
			return nil, err
		}
	}
	if bootstrap != nil {
		term, end, err := d.Promised()
		switch {
		case err != nil: // the disk cannot tell whether the cluster has begun
		case term == 0 && end == 0:
			err = raft.BootstrapCluster(conf, logs, stable, snaps, r.Trans, *bootstrap)
		case term == 1 && end == 0:
			// The process ended in the middle of that: raft stores the term, then the entry. No server has
			// voted in term 1.
			err = logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
				Data: raft.EncodeConfiguration(*bootstrap)})
		}
		if err != nil {
			return nil, fmt.Errorf("form cluster: %w", err)
		}
	}
	if r.Raft.Raft, err = raft.NewRaft(conf, f, logs, stable, snaps, r.Trans); err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	d.Ahead(r.Leads, port == nil)
	d.FollowApplied(r.AppliedIndex)
	return r, nil
}

func (o *Options) config() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = peer.ServerID(o.ID)
	// elect stands sooner, and with the others' agreement. If raft's timer ran out before that,
	// the survivor would ask for pre-votes, which servers that still believe in the leader, or are
	// being sent a snapshot, refuse.
	c.HeartbeatTimeout = o.HeartbeatTimeout * 3 / 2
	c.ElectionTimeout = c.HeartbeatTimeout // raft wants it so
	// A follower busy with its disk answers heartbeats late, because they pass
	// through its main loop; half the time would depose healthy leaders.
	c.LeaderLeaseTimeout = o.HeartbeatTimeout
	// The nudger tells followers of commits; raft's empty messages only replace one that was lost.
	c.CommitTimeout = min(250*time.Millisecond, o.HeartbeatTimeout)
	c.MaxAppendEntries = 64
	c.TrailingLogs = o.TrailingLogs
	// Snapshots are taken by our own count of requests and bytes: an entry may
	// hold a thousand requests.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 24 * time.Hour
	c.NoLegacyTelemetry = true
	c.NoSnapshotRestoreOnStart = true // see readDisk
	return c
}

// Lacks reports whether the newest configuration in the log, committed or not, lacks server id. It
// is false while the configuration has no members.
func (r *Raft) Lacks(id uint32) bool {
	is := func(s raft.Server) bool { return peer.ParseID(s.ID) == id }
	list := r.Servers()
	return len(list) > 0 && !slices.ContainsFunc(list, is)
}

// Configuration returns the newest members with the index of their log entry, which makes a change
// fail if the members have changed by then. An index that is not known is one that never fits.
func (r *Raft) Configuration() ([]raft.Server, uint64) {
	list := r.Servers()
	return list, r.disk.ConfigOf(list)
}

// Move gives a member another address; it votes as before.
func (r *Raft) Move(s *raft.Server, addr string, prev uint64) raft.Future {
	if s.Suffrage == raft.Voter {
		return r.AddVoter(s.ID, raft.ServerAddress(addr), prev, 0)
	}
	return r.AddNonvoter(s.ID, raft.ServerAddress(addr), prev, 0)
}

// LastEntry is the durable end of the log, as raft shows it to voters.
func (r *Raft) LastEntry() (term, index uint64) {
	stats := r.Stats()
	number := func(name string) uint64 {
		v, _ := strconv.ParseUint(stats[name], 10, 64)
		return v
	}
	term, index = number("last_log_term"), number("last_log_index")
	if snap := number("last_snapshot_index"); snap > index {
		return number("last_snapshot_term"), snap
	}
	// No voter may hear of entries that this server could still forget.
	if sure := r.disk.Durable(); index > sure {
		var l raft.Log
		if r.disk.Log().GetLog(sure, &l) == nil {
			term = l.Term
		}
		index = sure
	}
	return term, index
}
