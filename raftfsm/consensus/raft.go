// Package consensus wraps raft for the rest of a server: it starts raft on the stores of the disk, awaits its
// futures, gives its errors codes, provides a context for each leadership, and puts raft's lines into our
// log.
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

// Raft gives the other packages of a server access to raft.
type Raft struct {
	*elect.Raft
	disk *disk.Disk
}

// Options are the arguments of Start.
type Options struct {
	ID               uint32
	Self             raft.ServerAddress // the address by which raft knows this server
	HeartbeatTimeout time.Duration
	TrailingLogs     uint64
	Disk             *disk.Disk
	Port             *peer.Port            // nil in a cluster of one server
	Verify           func(io.Reader) error // reads a snapshot that another server sends
	Damaged          func(error)           // called when a snapshot on the disk is damaged
	Leadership       *Leadership           // told when this server gains or loses leadership
	Log              *slog.Logger
	Closed           *atomic.Bool // set when this server stops
}

// Start starts raft on the stores of the disk. On an empty disk raft begins with the configuration
// `bootstrap`. If `bootstrap` is nil, raft waits until a leader sends a configuration.
func Start(o Options, f raft.FSM, bootstrap *raft.Configuration) (*Raft, error) {
	d, port := o.Disk, o.Port
	r := &Raft{&elect.Raft{ID: o.ID, Self: o.Self, Began: time.Now()}, d}
	conf := o.config()
	conf.NotifyCh, conf.Logger = o.Leadership.notes, hcLogger(o.Log, o.Closed)
	logs, stable, snaps := d.Log(), d.Stable(), d.Snapshots(o.Verify, o.Damaged)
	var err error
	if port == nil {
		// This transport carries only the messages that this server sends to itself; see elect.Raft.
		_, t := raft.NewInmemTransport(r.Self)
		t.Connect(r.Self, t)
		r.Trans = t
	} else {
		r.Trans = port.Transport(d.Durable)
		// Entries are read from the log only to send them to followers. Followers that keep up need only the
		// newest entries.
		if logs, err = newLogCache(logs); err != nil {
			return nil, err
		}
	}
	if bootstrap != nil {
		term, end, err := d.Promised()
		switch {
		case err != nil: // the disk does not tell whether the cluster has begun
		case term == 0 && end == 0:
			err = raft.BootstrapCluster(conf, logs, stable, snaps, r.Trans, *bootstrap)
		case term == 1 && end == 0:
			// The process ended in the middle of the bootstrap: raft had stored the term, but not the entry. No
			// server has voted in term 1, so store the entry now.
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
	// Package elect makes this server stand for election sooner than raft's timer would, and only if the
	// other servers agree. If raft's timer ran out first, raft would ask for pre-votes. Servers refuse
	// pre-votes while they still believe in the leader or receive a snapshot.
	c.HeartbeatTimeout = o.HeartbeatTimeout * 3 / 2
	c.ElectionTimeout = c.HeartbeatTimeout // raft requires it
	// A follower busy with its disk answers heartbeats late, because heartbeats pass through its main loop. If
	// the lease were half as long, healthy leaders would lose the leadership.
	c.LeaderLeaseTimeout = o.HeartbeatTimeout
	// Package followers tells followers of commits. Raft's own empty messages do so only if a message of package
	// followers is lost, so they may come late.
	c.CommitTimeout = min(250*time.Millisecond, o.HeartbeatTimeout)
	c.MaxAppendEntries = 64
	c.TrailingLogs = o.TrailingLogs
	// A server takes snapshots by its own count of requests and bytes, because one entry may hold a thousand
	// requests.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 24 * time.Hour
	c.NoLegacyTelemetry = true
	c.NoSnapshotRestoreOnStart = true // see readDisk
	return c
}

// Lacks reports whether the newest configuration in the log, committed or not, lacks the server `id`. It
// returns false while the configuration has no members.
func (r *Raft) Lacks(id uint32) bool {
	is := func(s raft.Server) bool { return peer.ParseID(s.ID) == id }
	list := r.Servers()
	return len(list) > 0 && !slices.ContainsFunc(list, is)
}

// Configuration returns the newest members and the index of their log entry. A change that names this index
// fails if the members have changed since. If the index is unknown, Configuration returns an index that never
// matches.
func (r *Raft) Configuration() ([]raft.Server, uint64) {
	list := r.Servers()
	return list, r.disk.ConfigOf(list)
}

// Move gives a member another address. The member keeps its vote; a member without a vote gets none.
func (r *Raft) Move(s *raft.Server, addr string, prev uint64) raft.Future {
	if s.Suffrage == raft.Voter {
		return r.AddVoter(s.ID, raft.ServerAddress(addr), prev, 0)
	}
	return r.AddNonvoter(s.ID, raft.ServerAddress(addr), prev, 0)
}

// LastEntry returns the last durable entry of the log, as raft shows it to voters.
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
	// Voters must not learn of entries that this server could still lose.
	if sure := r.disk.Durable(); index > sure {
		var l raft.Log
		if r.disk.Log().GetLog(sure, &l) == nil {
			term = l.Term
		}
		index = sure
	}
	return term, index
}
