package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Node is this process's part in the cluster.
type Node struct {
	o     Options
	id    uint32
	log   *slog.Logger
	hclog hclog.Logger

	ctx    context.Context // ends when the Node closes
	cancel context.CancelFunc
	wg     sync.WaitGroup

	dir    *dataDir // nil in memory
	stores *Stores
	guard  *guard
	fsm    *fsm
	port   *peerPort // nil in a cluster of one
	trans  raft.Transport
	raft   *raft.Raft

	idMu     sync.Mutex
	identity identity

	leadership chan bool // raft's notes of leadership gained and lost
	leadMu     sync.Mutex
	leading    bool
	leadCount  uint64        // how often that changed
	leadNews   chan struct{} // holds a token when it did
	term       atomic.Pointer[term]

	nonceMu sync.Mutex
	nonce   int64 // of our current open request

	gate   gate
	opened chan struct{} // holds a token when our stream was opened
	up     atomic.Bool   // raft runs
	formMu sync.Mutex
	formed chan struct{} // closed when a formation was accepted

	failed atomic.Pointer[error]
	closed atomic.Bool

	// Elections counts leadership changes seen by this server.
	elections atomic.Int64
}

// Start runs a server's part in the cluster. It returns when the server has
// joined its cluster, which for a new cluster of several means that all of
// them have been started; ctx bounds that wait.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, id: o.ID, log: o.Logger, hclog: hcLogger(o.Logger),
		leadership: make(chan bool, 1), leadNews: make(chan struct{}, 1), opened: make(chan struct{}, 1), formed: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	n.guard = newGuard(o.Logger, n.die)
	if err := n.openDisk(); err != nil {
		return nil, err
	}
	if len(o.Peers) > 0 {
		if n.port, err = openPeerPort(n); err != nil {
			return nil, err
		}
		n.port.wg.Go(n.port.accept)
		n.wg.Go(n.checkReach)
	}
	bootstrap, err := n.join(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.startRaft(bootstrap); err != nil {
		return nil, err
	}
	n.comparePeers()
	n.wg.Go(func() { n.guard.watch(n.ctx) })
	n.wg.Go(n.noteLeadership)
	n.wg.Go(n.lead)
	if n.port != nil {
		n.wg.Go(n.follow)
		n.wg.Go(n.watchSilence)
	}
	n.wg.Go(n.standFirst)
	n.wg.Go(n.watchGate)
	n.wg.Go(n.snapshots)
	return n, nil
}

func (n *Node) openDisk() (err error) {
	if n.o.DataDir == "" {
		n.stores = n.o.Stores
		if n.stores == nil {
			n.stores = NewMemoryStores(len(n.o.Peers) <= 1)
		}
		if n.stores.Identity.Birth == "" {
			*n.stores.Identity = identity{Server: n.id, Birth: randomID(n.o.Rand)}
		}
		n.identity = *n.stores.Identity
		return nil
	}
	if n.dir, err = openDataDir(n.o.DataDir); err != nil {
		return err
	}
	if n.identity, err = n.dir.loadIdentity(n.id, n.o.Rand); err != nil {
		return err
	}
	n.stores, err = openStores(n.dir, n.o.LogStore, n.o.SnapshotRetain)
	return err
}

// saveIdentity makes a changed identity durable before anything depends on it.
func (n *Node) saveIdentity(id identity) error {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	if n.dir != nil {
		if err := n.dir.saveIdentity(id); err != nil {
			return fmt.Errorf("write identity: %w", err)
		}
	} else {
		*n.stores.Identity = id
	}
	n.identity = id
	return nil
}

func (n *Node) whoAmI() identity {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	return n.identity
}

func (n *Node) greeting(to uint32) greeting {
	id := n.whoAmI()
	g := greeting{From: n.id, To: to, Cluster: id.Cluster, Birth: id.Birth, Version: peerVersion, Oldest: peerOldest}
	if n.up.Load() {
		g.Term = n.raft.CurrentTerm()
	}
	return g
}

func (n *Node) startRaft(bootstrap *raft.Configuration) error {
	n.fsm = newFSM(n.id, n.whoAmI().Cluster, n.die)
	n.fsm.obs = n.o.Observer
	n.fsm.onOpened = n.streamOpened
	n.fsm.onMember = func() {
		if t := n.term.Load(); t != nil {
			t.memberNews()
		}
	}
	n.fsm.onApplied = func(uint64, uint64) {}
	n.trans = n.newTransport()
	logs, err := n.openLog()
	if err != nil {
		return err
	}
	stable := guardedStable{n.stores.Stable, n.guard}
	snaps := guardedSnapshots{n.stores.Snapshots, n.guard}
	c := n.raftConfig()
	if bootstrap != nil {
		has, err := raft.HasExistingState(logs, stable, snaps)
		if err != nil {
			return err
		}
		if !has {
			if err := raft.BootstrapCluster(c, logs, stable, snaps, n.trans, *bootstrap); err != nil {
				return fmt.Errorf("form cluster: %w", err)
			}
		}
	}
	n.raft, err = raft.NewRaft(c, n.fsm, logs, stable, snaps, n.trans)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	n.up.Store(true)
	return nil
}

// openLog returns the log as raft uses it. Only followers are sent entries from
// the log, and those that keep up are sent the newest.
func (n *Node) openLog() (raft.LogStore, error) {
	logs := guardedLog{n.stores.Log, n.guard}
	if n.port == nil {
		return logs, nil
	}
	return raft.NewLogCache(logCacheEntries, logs)
}

func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = serverID(n.id)
	c.HeartbeatTimeout = n.o.HeartbeatTimeout
	c.ElectionTimeout = n.o.HeartbeatTimeout
	// A follower busy with its disk answers heartbeats late, because they pass
	// through its main loop; half the time would depose healthy leaders.
	c.LeaderLeaseTimeout = n.o.HeartbeatTimeout
	c.CommitTimeout = min(50*time.Millisecond, n.o.HeartbeatTimeout)
	c.MaxAppendEntries = 64
	c.TrailingLogs = n.o.TrailingLogs
	// Snapshots are taken by our own count of requests and bytes: an entry may
	// hold a thousand requests.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 24 * time.Hour
	c.NotifyCh = n.leadership
	c.Logger = n.hclog
	c.NoLegacyTelemetry = true
	return c
}

// die ends the server because it cannot be sure of its own state.
func (n *Node) die(err error) {
	if n.closed.Load() || !n.failed.CompareAndSwap(nil, &err) {
		return
	}
	n.log.Error("this server stops: its state or its storage cannot be trusted", "err", err)
	n.gate.shut(n)
	n.o.Fatal(err)
}

// Err returns why the server ended, or nil.
func (n *Node) Err() error {
	if p := n.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Propose puts a request into this server's stream. It copies the request and
// blocks while the stream is full. The waiter is told the outcome, unless an
// error is returned, which means that this server does not serve.
func (n *Node) Propose(r Request, w Waiter) error { return n.fsm.stream.put(&r, w) }

// View runs f on the state under the read lock. f must neither block nor keep
// anything of the state.
func (n *Node) View(f func(*State)) { n.fsm.view(f) }

// WaitZxid waits until this server has applied zxid, or ctx ends. A leader does
// not wait: nobody has seen anything newer than what it has applied.
func (n *Node) WaitZxid(ctx context.Context, zxid int64) bool {
	if n.term.Load() != nil {
		return n.fsm.zxid.Load() >= zxid
	}
	return n.fsm.wait(ctx.Done(), func() bool { return n.fsm.zxid.Load() >= zxid })
}

// Zxid returns the zxid of the last change applied here.
func (n *Node) Zxid() int64 { return n.fsm.zxid.Load() }

// ID returns this server's id.
func (n *Node) ID() uint32 { return n.id }

// PeerAddr returns the address of the peer port, empty if there is none.
func (n *Node) PeerAddr() string {
	if n.port == nil {
		return ""
	}
	return n.port.ln.Addr().String()
}

// servers returns the newest configuration raft knows.
func (n *Node) servers() []raft.Server {
	if !n.up.Load() {
		return nil
	}
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return slices.Clone(f.Configuration().Servers) // raft's own list is shared
}

// snapshots takes snapshots when the log behind the last one has grown long
// enough.
func (n *Node) snapshots() {
	const look = time.Second
	last := time.Now()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		c := &n.fsm.counted
		requests := c.requests.Load()
		due := requests >= n.o.SnapshotEntries || c.bytes.Load() >= n.o.SnapshotBytes ||
			n.o.SnapshotInterval > 0 && requests > 0 && time.Since(last) >= n.o.SnapshotInterval
		if !due {
			continue
		}
		if err := n.Snapshot(); err != nil {
			n.log.Debug("no snapshot taken", "err", err)
		}
		last = time.Now()
	}
}

// Snapshot writes a snapshot now.
func (n *Node) Snapshot() error {
	start := time.Now()
	err := n.raft.Snapshot().Error()
	if err == nil {
		n.log.Info("snapshot taken", "zxid", fmt.Sprintf("0x%x", n.Zxid()), "took", time.Since(start).Round(time.Millisecond))
	}
	return err
}

// Close stops the server's part in the cluster. A leader hands over first, so
// that nobody has to wait for an election.
func (n *Node) Close(ctx context.Context) error {
	if n.closed.Swap(true) {
		return nil
	}
	n.handOver(ctx)
	return n.end(ctx)
}

// Abort stops the server's part without handing anything over, as the end of
// its process would. It is for tests.
func (n *Node) Abort() {
	if !n.closed.Swap(true) {
		n.end(context.Background())
	}
}

func (n *Node) end(ctx context.Context) error {
	n.gate.shut(n)
	n.cancel()
	err := n.stopRaft(ctx)
	for _, w := range n.fsm.stream.drain() {
		w.Done(&Outcome{Unknown: true})
	}
	n.wg.Wait()
	return errors.Join(err, n.release())
}

// handOver gives leadership away, if there is anybody to take it.
func (n *Node) handOver(ctx context.Context) {
	if n.failed.Load() != nil || n.raft.State() != raft.Leader || len(n.servers()) < 2 {
		return
	}
	done := make(chan error, 1)
	f := n.raft.LeadershipTransfer()
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		n.log.Info("leadership handed over", "err", err)
	case <-time.After(2 * n.o.HeartbeatTimeout):
	case <-ctx.Done():
	}
}

// stopRaft bounds raft's shutdown: a goroutine of its that hangs in a store
// must not keep us.
func (n *Node) stopRaft(ctx context.Context) error {
	done := make(chan error, 1)
	f := n.raft.Shutdown()
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second):
		return errors.New("raft did not stop within 5 s")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release gives back what Start acquired besides raft.
func (n *Node) release() error {
	n.cancel()
	var errs []error
	if n.port != nil {
		n.port.close()
	}
	if n.stores != nil {
		errs = append(errs, n.stores.close())
	}
	if n.dir != nil {
		errs = append(errs, n.dir.close())
	}
	return errors.Join(errs...)
}
