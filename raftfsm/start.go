package raftfsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
)

// Start runs a server's part in the cluster. It returns when the server has joined its cluster. The servers
// of a new cluster join it when all of them have been started. ctx bounds the wait.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, id: o.ID, log: o.Logger, leadership: consensus.NewLeadership()}
	n.known = leaderWatch{n: n, news: signal.New(), lost: time.Now()}
	n.upkeep = upkeep.New(n.upkeepOptions())
	n.serving = serving.New(serving.Options{ID: o.ID, Heartbeat: o.HeartbeatTimeout, ReadOnly: o.ReadOnly,
		DataDir: o.DataDir, Clients: o.Observer, Unavailable: o.Measures.Unavailable,
		Leads: func() bool { return n.leader.Term() != nil }, Gone: n.gone, Closed: &n.closed, Log: n.log})
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = n.release()
		}
	}()
	n.addresses = newAddresses(n)
	n.disk, err = disk.Open(disk.Options{Server: o.ID, Dir: o.DataDir, LogStore: o.LogStore,
		SnapshotRetain: o.SnapshotRetain, Check: n.readDisk,
		Memory: o.Stores, Files: o.Files, Alone: len(o.Peers) == 0, Rand: o.Rand, Logger: o.Logger,
		Fatal: n.die})
	if err != nil {
		return nil, err
	}
	if n.promises, err = form.LoadPromises(n.disk, n.log); err != nil {
		return nil, err
	}
	n.wg.Go(func() { n.promises.Keep(n.ctx) })
	n.forming = form.New(form.Options{List: *o.list(), Listen: o.PeerListen, Disk: n.disk,
		Promises: n.promises, Rand: o.Rand, Log: n.log, Waiting: o.Waiting})
	if len(o.Peers) > 0 {
		n.port, err = peer.Open(n.ctx, peer.Options{ID: o.ID, Addr: o.PeerListen,
			SelfAddr: string(o.list().Self()),
			Release:  o.Release, TLS: o.PeerTLS,
			Host: host{n}, Listen: o.Listen, Dial: o.Dial, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		n.forming.Use(n.port)
		n.port.Serve()
		n.wg.Go(func() { n.forming.CheckReach(n.ctx) })
	}
	bootstrap, err := n.forming.Join(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.startRaft(bootstrap); err != nil {
		return nil, err
	}
	n.forming.Compare(n.raft.Servers())
	n.wg.Go(func() { n.disk.Watch(n.ctx) })
	n.wg.Go(func() { n.leadership.Listen(n.ctx) })
	n.wg.Go(func() { n.leader.Run(n.ctx) })
	if n.port != nil {
		n.wg.Go(n.follow)
		n.wg.Go(n.watchLeader)
		n.wg.Go(n.addresses.watch)
		n.wg.Go(func() { n.elections.Watch(n.ctx) })
		n.wg.Go(func() { n.newRelief().Watch(n.ctx) })
	} else if err := n.raft.Stand(); err != nil {
		n.log.Debug("could not stand for election", "err", err)
	}
	n.wg.Go(func() {
		if n.serving.Watch(n.ctx, n.fsm.Stream.Opened) {
			n.die(errors.New("this server was removed from the cluster"))
		}
	})
	n.wg.Go(func() { n.upkeep.Snapshots(n.ctx) })
	if !n.disk.InMemory() && n.o.DiskReserve >= 0 {
		n.wg.Go(func() { n.upkeep.WatchDisk(n.ctx) })
	}
	return n, nil
}

// readDisk reads the newest snapshot and checks the log. It runs before other servers learn of this start: if
// this server refuses the directory and the operator puts the earlier directory back, the other servers must
// not mistake that directory for an old copy.
func (n *Node) readDisk(d *disk.Disk) error {
	n.disk = d
	if d.Identity().Cluster == "" {
		return nil // the directory is new
	}
	if err := n.makeFSM(); err != nil {
		return err
	}
	snaps := d.Snapshots(n.fsm.Verify, n.upkeep.Damaged)
	list, err := snaps.List()
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	var covered uint64
	if len(list) > 0 {
		covered = list[0].Index
		_, r, err := snaps.Open(list[0].ID)
		if err != nil {
			return fmt.Errorf("read snapshot: %w", err)
		}
		if err := n.fsm.Restore(r); err != nil {
			return err
		}
	}
	if err := d.CheckLog(covered); err != nil {
		return fmt.Errorf("check log: %w", err)
	}
	return nil
}

func (n *Node) makeFSM() error {
	last, err := n.disk.Log().LastIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	n.fsm = apply.New(apply.Options{ID: n.id, Cluster: n.disk.Identity().Cluster, Observer: n.o.Observer,
		Now: n.o.Now, Measures: n.o.Measures, Log: n.log, Ctx: n.ctx, Fatal: n.die, Durable: n.disk.WaitDurable,
		Logged: last,
		Reopen: func() { go n.openOwnStream() },
		Opened: func() {
			if t := n.leader.Term(); t != nil {
				t.Announced()
			}
		}})
	return nil
}

// upkeepOptions returns the bounds on the data that this server stores.
func (n *Node) upkeepOptions() upkeep.Options {
	o := &n.o
	return upkeep.Options{Dir: o.DataDir, Entries: o.SnapshotEntries, Bytes: o.SnapshotBytes,
		Interval: o.SnapshotInterval, TrailingLogs: o.TrailingLogs, TrailingBytes: o.TrailingBytes,
		Forgets: o.forgets(), DiskReserve: o.DiskReserve, MaxNodes: o.MaxNodes, MaxBytes: o.MaxBytes,
		FreeBytes: o.FreeBytes, View: n.View, Barrier: n.barrier, Took: o.Measures.SnapshotWriteTime,
		Log:    n.log,
		Logged: func() (requests, bytes int64) { return n.fsm.Counted() },
		Followers: func() map[uint32]uint64 {
			if t := n.leader.Term(); t != nil {
				return t.Progress()
			}
			return nil
		}}
}

// startRaft starts raft, and then the parts that need it.
func (n *Node) startRaft(bootstrap *raft.Configuration) (err error) {
	if n.fsm == nil {
		if err := n.makeFSM(); err != nil {
			return err
		}
	}
	n.raft, err = consensus.Start(consensus.Options{ID: n.id, Self: n.o.list().Self(),
		HeartbeatTimeout: n.o.HeartbeatTimeout, TrailingLogs: n.o.TrailingLogs, Disk: n.disk, Port: n.port,
		Verify: n.fsm.Verify, Damaged: n.upkeep.Damaged, Leadership: n.leadership, Log: n.log,
		Closed: &n.closed},
		n.fsm, bootstrap)
	if err != nil {
		return err
	}
	n.upkeep.Use(n.disk, n.raft)
	n.serving.Use(n.raft, n.fsm, n.port)
	n.elections = &elect.Elections{Raft: n.raft.Raft, Port: n.port, Status: n.status,
		Heartbeat: n.o.HeartbeatTimeout, Log: n.log,
		News: signal.New()}
	if n.fsm.Newest() != nil {
		_, at := n.disk.NewestSnapshot()
		n.fsm.Found(at)
	}
	n.restorer = restore.New(restore.Options{ID: n.id, Stream: n.fsm.Stream, View: n.View, Serving: n.Serving,
		Refuses: n.fsm.Low, DiskLow: func() bool { return n.upkeep.DiskLow() != "" }, Ended: n.ctx.Done(),
		Now: n.o.Now, Rand: n.o.Rand})
	o := &n.o
	leads := leading.Options{ID: n.id, Raft: n.raft, State: n.fsm, Disk: n.disk, Promises: n.promises,
		Serving: n.serving, Upkeep: n.upkeep, Relief: n.newRelief(), Leadership: n.leadership,
		Go: n.wg.Go, Instead: n.addresses.instead, Incarnation: n.incarnationOf, Opening: n.opening,
		AskLeader: n.askLeader, Heard: o.Observer.Heard, Heartbeat: o.HeartbeatTimeout,
		MinSessionTimeout: o.MinSessionTimeout, TouchEvery: o.touchEvery(), SweepInterval: o.SweepInterval,
		EnforceQuota: o.EnforceQuota, NoTTL: o.NoTTL, OneLayout: o.OneLayout, Words: o.Words,
		Measures: o.Measures, Now: o.Now, Rand: o.Rand, Log: n.log}
	if n.port != nil {
		leads.Port = n.port
	}
	n.leader.Use(leads)
	n.up.Store(true)
	return nil
}

func (n *Node) newRelief() *elect.Relief {
	return &elect.Relief{Raft: n.raft.Raft, Port: n.port, Writing: n.disk.Writing, Log: n.log}
}

// barrier adds an entry without effect to the log if this server leads.
func (n *Node) barrier() {
	if t := n.leader.Term(); t != nil {
		t.Barrier()
	}
}

// Close stops the server's part in the cluster. A leader first gives the leadership to another server, so
// that no client has to wait for an election.
func (n *Node) Close(ctx context.Context) error {
	if n.closed.Swap(true) {
		return nil
	}
	// A disk that hangs may block any goroutine, so Close waits for the goroutines only until ctx ends.
	done := make(chan error, 1)
	go func() {
		n.handOver(ctx)
		done <- n.end(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("this server did not stop in time, its storage may hang: %w", ctx.Err())
	}
}

// Abort stops the server's part without a handover, as if its process had ended. It is for tests.
func (n *Node) Abort() {
	if !n.closed.Swap(true) {
		_ = n.end(context.Background())
	}
}

func (n *Node) end(ctx context.Context) error {
	n.serving.End()
	n.cancel()
	err := n.stopRaft(ctx)
	for _, w := range n.fsm.Stream.Drain() {
		w.Done(&state.Outcome{Unknown: true}, nil)
	}
	n.wg.Wait()
	return errors.Join(err, n.release())
}

// handOver gives leadership away, if there is another server to take it.
func (n *Node) handOver(ctx context.Context) {
	if n.failed.Load() != nil || !n.raft.Leads() || len(n.raft.Servers()) < 2 {
		return
	}
	if t := n.leader.Term(); t != nil && len(t.Far()) == 0 {
		return // otherwise raft would wait for servers that are gone
	}
	ctx, cancel := context.WithTimeout(ctx, 2*n.o.HeartbeatTimeout)
	defer cancel()
	if err := consensus.Await(ctx, n.raft.LeadershipTransfer()); err != nil {
		n.log.Info("leadership could not be handed over; the other servers will elect a leader", "err", err)
	} else {
		n.log.Info("leadership handed over")
	}
}

// stopRaft shuts raft down, or gives up when ctx ends: a goroutine of raft that hangs in a store must not
// keep this server from stopping.
func (n *Node) stopRaft(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("raft did not stop within 5 s"))
	defer cancel()
	if err := consensus.Await(ctx, n.raft.Shutdown()); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// release() releases everything that Start acquired, except raft.
func (n *Node) release() error {
	n.cancel()
	if n.port != nil {
		n.port.Close()
	}
	if n.disk == nil {
		return nil
	}
	return n.disk.Close()
}
