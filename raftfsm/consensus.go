package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
)

// consensus is raft as the rest of this package sees it.
type consensus struct {
	*elect.Raft
	disk *disk.Disk
}

// startConsensus starts raft on what the disk holds. On an empty disk it begins with the
// configuration bootstrap, or, if that is nil, waits to be told one. It sends leadership gained and
// lost to notes, and waits until that is received.
func startConsensus(o *Options, d *disk.Disk, port *peer.Port, f *fsm, notes chan bool, log hclog.Logger,
	bootstrap *raft.Configuration) (*consensus, error) {
	r := &consensus{&elect.Raft{ID: o.ID, Self: o.selfAddr(), Began: time.Now()}, d}
	conf := o.raftConfig()
	conf.NotifyCh, conf.Logger = notes, log
	logs, stable, snaps := d.Log(), d.Stable(), d.Snapshots(f.verify, f.damaged)
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

func (o *Options) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = peer.ServerID(o.ID)
	// succession stands sooner, and with the others' agreement. If raft's timer ran out before that,
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

// selfAddr is the address raft knows this server by.
func (o *Options) selfAddr() raft.ServerAddress {
	if addr := o.Peers[o.ID]; addr != "" {
		return raft.ServerAddress(addr)
	}
	return "local"
}

// lacks reports whether the newest configuration in the log, committed or not, lacks server id. It
// is false while the configuration has no members.
func (r *consensus) lacks(id uint32) bool {
	is := func(s raft.Server) bool { return peer.ParseID(s.ID) == id }
	list := r.Servers()
	return len(list) > 0 && !slices.ContainsFunc(list, is)
}

// configuration returns the newest members with the index of their log entry, which makes a change
// fail if the members have changed by then. An index that is not known is one that never fits.
func (r *consensus) configuration() ([]raft.Server, uint64) {
	list := r.Servers()
	return list, r.disk.ConfigOf(list)
}

// move gives a member another address; it votes as before.
func (r *consensus) move(s *raft.Server, addr string, prev uint64) raft.Future {
	if s.Suffrage == raft.Voter {
		return r.AddVoter(s.ID, raft.ServerAddress(addr), prev, 0)
	}
	return r.AddNonvoter(s.ID, raft.ServerAddress(addr), prev, 0)
}

// lastEntry is the durable end of the log, as raft shows it to voters.
func (r *consensus) lastEntry() (term, index uint64) {
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

// await waits for a future of raft's, which may never complete, until ctx ends. It
// gives raft's errors their codes.
func await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return coded(err)
	case <-ctx.Done():
		return status.With(status.Interrupted, ctx.Err())
	}
}

// coded gives an error of raft's its code.
func coded(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return status.With(status.NoLeader, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return status.With(status.Interrupted, err)
	}
	return err
}

// hcLogger lets the raft library log through ours, nearly all of it as debug: this package itself
// logs, once for each event, what an operator should know of leadership, members and servers that
// are not reached. Once closed is set no line of raft's is a warning: raft is being stopped.
func hcLogger(log *slog.Logger, closed *atomic.Bool) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: lineLogger{log, closed},
		DisableTime: true})
}

// raftWarns are the beginnings of those of raft's lines that stay warnings: this package does not
// log the same itself, and their cause is not another server being gone.
var raftWarns = []string{
	"failed to take snapshot", "failed to get last log index", "failed to remove old logs",
	"failed to compact logs",
	"got unexpected command", "expected heartbeat", "pre-vote is disabled",
	"failed to receive whole snapshot", "failed to finalize snapshot", "failed to restore snapshot",
}

type lineLogger struct {
	log    *slog.Logger
	closed *atomic.Bool
}

// Write takes one line, which looks like "[WARN]  raft: what happened: key=value".
func (l lineLogger) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	if _, after, ok := strings.Cut(line, "] "); ok {
		line = strings.TrimSpace(after)
	}
	level := slog.LevelDebug
	for _, begin := range raftWarns {
		if strings.HasPrefix(line, "raft: "+begin) && !l.closed.Load() {
			level = slog.LevelWarn
		}
	}
	l.log.Log(context.Background(), level, line)
	return len(b), nil
}

// logCache keeps the newest log entries in memory for followers, which are sent entries from the
// log. It leaves out those that are longer than cacheLongest: an entry may be as long as a request.
type logCache struct {
	*raft.LogCache
	below raft.LogStore
}

const (
	cacheEntries = 64
	cacheLongest = stream.BatchBytes + stream.BlockBytes // of several requests
)

func newLogCache(below raft.LogStore) (logCache, error) {
	c, err := raft.NewLogCache(cacheEntries, below)
	return logCache{c, below}, err
}

// StoreLog implements raft.LogStore.
func (c logCache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (c logCache) StoreLogs(logs []*raft.Log) error {
	if slices.ContainsFunc(logs, func(l *raft.Log) bool { return len(l.Data) > cacheLongest }) {
		return c.below.StoreLogs(logs)
	}
	return c.LogCache.StoreLogs(logs)
}
