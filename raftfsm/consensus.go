package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// consensus is raft as the rest of this package sees it: servers have our ids,
// and there is what raft knows but does not offer.
type consensus struct {
	*raft.Raft
	id    uint32
	self  raft.ServerAddress // where raft knows this server
	trans raft.Transport
	disk  *disk.Disk
	began time.Time
	stuck atomic.Bool // this server's log hangs; see relief
}

// startConsensus starts raft on what the disk holds. On an empty disk it begins
// with the configuration bootstrap, or, if that is nil, waits to be told one.
// It tells notes of leadership gained and lost, and waits until it is heard.
func startConsensus(o *Options, d *disk.Disk, port *peer.Port, f *fsm, notes chan bool, log hclog.Logger, bootstrap *raft.Configuration) (*consensus, error) {
	r := &consensus{id: o.ID, self: o.selfAddr(), disk: d, began: time.Now()}
	conf := o.raftConfig()
	conf.NotifyCh, conf.Logger = notes, log
	logs, stable, snaps := d.Log(), d.Stable(), d.Snapshots(f.verify, f.damaged)
	var err error
	if port == nil {
		// Only for the one message that this server sends itself; see stand.
		_, t := raft.NewInmemTransport(r.self)
		t.Connect(r.self, t)
		r.trans = t
	} else {
		r.trans = port.Transport(d.Durable)
		// Only followers are sent entries from the log, and those that keep up are
		// sent the newest.
		logs = &logCache{LogStore: logs}
	}
	if bootstrap != nil {
		term, end, err := d.Promised()
		switch {
		case err != nil:
			return nil, err
		case term == 0 && end == 0:
			err = raft.BootstrapCluster(conf, logs, stable, snaps, r.trans, *bootstrap)
		case term == 1 && end == 0:
			// The process ended in the middle of that: raft stores the term, then
			// the entry. Nobody has voted in term 1.
			err = logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(*bootstrap)})
		}
		if err != nil {
			return nil, fmt.Errorf("form cluster: %w", err)
		}
	}
	if r.Raft, err = raft.NewRaft(conf, f, logs, stable, snaps, r.trans); err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	d.Ahead(r.leads, port == nil)
	d.FollowApplied(r.AppliedIndex)
	return r, nil
}

func (o *Options) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = peer.ServerID(o.ID)
	// succession stands sooner, and with the others' agreement. Where raft's timer
	// ran out before that, the survivor would ask for pre-votes that those who
	// still believe in the leader, or are being sent a snapshot, refuse.
	c.HeartbeatTimeout = o.HeartbeatTimeout * 3 / 2
	c.ElectionTimeout = c.HeartbeatTimeout // raft wants it so
	// A follower busy with its disk answers heartbeats late, because they pass
	// through its main loop; half the time would depose healthy leaders.
	c.LeaderLeaseTimeout = o.HeartbeatTimeout
	c.CommitTimeout = min(50*time.Millisecond, o.HeartbeatTimeout)
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

// leader tells who leads, as far as this server knows; id 0: nobody.
func (r *consensus) leader() (id uint32, addr string) {
	a, i := r.LeaderWithID()
	if a == "" {
		return 0, ""
	}
	return peer.ParseID(i), string(a)
}

// leads reports whether raft takes this server for the leader. It then holds
// its lease, but may not yet have applied all that was ever acknowledged. While
// the log hangs it does not lead: raft's main loop, which looks after the lease,
// may hang with it, and the others may have elected another leader.
func (r *consensus) leads() bool { return r.State() == raft.Leader && !r.stuck.Load() }

// heardOfLeader returns when this server last heard of another one that leads, if
// it knows a leader. Raft counts more than that as a contact: a vote that it gave,
// and that it stepped down itself.
func (r *consensus) heardOfLeader() time.Time {
	at := r.LastContact()
	// Raft forgets the leader before it notes a vote, and this server after.
	if id, _ := r.leader(); id == 0 || id == r.id {
		return time.Time{}
	}
	return at
}

// nobodyLeadsBut reports whether this server knows no leader other than id.
func (r *consensus) nobodyLeadsBut(id uint32) bool {
	now, _ := r.leader()
	return now == 0 || now == id
}

// servers returns the newest configuration raft knows.
func (r *consensus) servers() []raft.Server {
	list, _ := r.configuration()
	return list
}

// lacks reports whether the newest members in the log, known to count or not, are
// others than this server. It is false while there are none.
func (r *consensus) lacks(id uint32) bool {
	f := r.GetConfiguration()
	if f.Error() != nil {
		return false
	}
	is := func(s raft.Server) bool { return peer.ParseID(s.ID) == id }
	list := f.Configuration().Servers // raft's own, which never changes
	return len(list) > 0 && !slices.ContainsFunc(list, is)
}

// configuration is the same with the index of its log entry, which makes a change
// fail if the members are others by then. A configuration whose index is not known
// has one that never fits.
func (r *consensus) configuration() ([]raft.Server, uint64) {
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil, 0
	}
	list := f.Configuration().Servers // raft's own, which is shared
	return slices.Clone(list), r.disk.ConfigOf(list)
}

// move gives a member another address; it votes as before.
func (r *consensus) move(s *raft.Server, addr string, prev uint64) raft.Future {
	if s.Suffrage == raft.Voter {
		return r.AddVoter(s.ID, raft.ServerAddress(addr), prev, 0)
	}
	return r.AddNonvoter(s.ID, raft.ServerAddress(addr), prev, 0)
}

// silence is how long this server has heard nothing of a leader; 0 where it
// leads.
func (r *consensus) silence() time.Duration {
	if r.leads() {
		return 0
	}
	last := r.LastContact()
	if last.IsZero() {
		last = r.began // if there is a leader, all that it has sent yet is a snapshot that is not whole
	}
	return time.Since(last)
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
	if sure := r.disk.Durable(); index > sure { // nobody is told of what this server could still forget
		var l raft.Log
		if r.disk.Log().GetLog(sure, &l) == nil {
			term = l.Term
		}
		index = sure
	}
	return term, index
}

// header is that of a message to another server's raft.
func (r *consensus) header() raft.RPCHeader {
	id := peer.ServerID(r.id)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: r.trans.EncodePeer(id, r.self)}
}

// stand lets this server stand for election now. It tells itself what a leader
// that hands over tells its successor.
func (r *consensus) stand() error {
	var resp raft.TimeoutNowResponse
	return r.trans.TimeoutNow(peer.ServerID(r.id), r.self, &raft.TimeoutNowRequest{RPCHeader: r.header()}, &resp)
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
