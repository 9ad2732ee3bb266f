package raftfsm

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
)

// Node is this process's part in the cluster. Start sets its fields before any of its goroutines runs; fields
// that change later are atomic or have a lock of their own. Requests of peers may use raft once the field
// `up` is set.
type Node struct {
	o   Options
	id  uint32
	log *slog.Logger

	ctx    context.Context // ends when the Node closes
	cancel context.CancelFunc
	wg     sync.WaitGroup

	disk *disk.Disk
	port *peer.Port // nil in a cluster of one server
	fsm  *apply.FSM
	raft *consensus.Raft
	up   atomic.Bool // set when raft runs

	promises   *form.Promises
	addresses  *addresses
	forming    *form.Forming
	elections  *elect.Elections
	linked     atomic.Uint32 // id of the leader to which this server has a link; 0: there is no link
	serving    *serving.Service
	leadership *consensus.Leadership
	leader     leading.Leader

	// removed is the index of a configuration, known to other servers, that does not include this server; 0:
	// there is none. If this server was away when it was removed, its own log does not contain that
	// configuration.
	removed atomic.Uint64

	failed atomic.Pointer[error]
	closed atomic.Bool

	restorer *restore.Restorer

	known  leaderWatch
	upkeep *upkeep.Upkeep
}

// die() ends this server because it cannot trust its own state.
func (n *Node) die(err error) {
	if n.closed.Load() || !n.failed.CompareAndSwap(nil, &err) {
		return
	}
	n.log.Error("this server stops: its state or its storage cannot be trusted", "err", err)
	n.serving.End()
	n.o.Fatal(err)
}

// Err returns why the server ended. It returns nil if no error ended it.
func (n *Node) Err() error {
	if p := n.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// View runs f on the state under the read lock. f must neither block nor keep
// anything of the state.
func (n *Node) View(f func(*state.State)) { n.fsm.View(f) }

// Ephemerals calls fn for the ephemeral nodes until fn returns false; see apply.FSM.
func (n *Node) Ephemerals(fn func(session int64, path string) (more bool)) { n.fsm.Ephemerals(fn) }

// WaitZxid waits until this server has applied zxid, or ctx ends. A leader does not wait, because no client
// has seen a state newer than the leader's.
func (n *Node) WaitZxid(ctx context.Context, zxid int64) bool {
	if n.leader.Term() != nil {
		return n.fsm.Zxid() >= zxid
	}
	return n.fsm.Wait(ctx.Done(), func() bool { return n.fsm.Zxid() >= zxid })
}

// Serving reports whether clients may be served, and if not, why.
func (n *Node) Serving() (bool, string) { return n.serving.On() }

// PingOK reports whether a ping of a session with this timeout may be answered; see serving.Service.
func (n *Node) PingOK(timeout time.Duration) bool { return n.serving.PingOK(timeout) }

// Restore replaces the whole cluster's state by a backup; see restore.Restorer.
func (n *Node) Restore(ctx context.Context, backup io.Reader, size int64, keep bool) (
	restore.Restored, error) {
	return n.restorer.Restore(ctx, backup, size, keep)
}

// Snapshot writes a snapshot now.
func (n *Node) Snapshot() error { return n.upkeep.Snapshot() }

// Room returns an error if this server's disk has no room for this many more bytes.
func (n *Node) Room(bytes int64) error { return n.upkeep.Room(bytes) }

// Fits returns an error if a backup with this many nodes and bytes is too large for this server.
func (n *Node) Fits(nodes int, bytes int64) error { return n.upkeep.Fits(nodes, bytes) }

// Backup returns a backup of the present state; see apply.FSM.
func (n *Node) Backup(ctx context.Context) (*apply.Backup, error) { return n.fsm.Backup(ctx) }

// Zxid returns the zxid of the last change applied here.
func (n *Node) Zxid() int64 { return n.fsm.Zxid() }

// ID returns this server's id.
func (n *Node) ID() uint32 { return n.id }

// PeerAddr returns the address of the peer port, empty if there is none.
func (n *Node) PeerAddr() string {
	if n.port == nil {
		return ""
	}
	return n.port.Addr()
}
