package raftfsm

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/upkeep"
	"github.com/zlockd/zlockd/tree"
)

// Node is this process's part in the cluster. Start sets its fields before any of its goroutines
// runs; fields that change later are atomic or have a lock of their own. Requests of peers may use
// raft once up is set.
type Node struct {
	o   Options
	id  uint32
	log *slog.Logger

	ctx    context.Context // ends when the Node closes
	cancel context.CancelFunc
	wg     sync.WaitGroup

	disk *disk.Disk
	port *peer.Port // nil in a cluster of one
	fsm  *fsm
	raft *consensus.Raft
	up   atomic.Bool // raft runs

	promises   *form.Promises
	stored     stored // how far the others' logs are, while this server leads
	addresses  *addresses
	forming    *form.Forming
	elections  *elect.Elections
	linked     atomic.Uint32 // the leader to which our link stands; 0: none
	serving    serving
	leadership *consensus.Leadership
	term       atomic.Pointer[term] // that this server leads; nil: none
	won        atomic.Int64         // elections

	// removed is the index of a configuration without this server that others have; 0: none. A server
	// that was away when it was removed does not find that in its log.
	removed atomic.Uint64

	failed atomic.Pointer[error]
	closed atomic.Bool

	restorer *restore.Restorer

	known  leaderWatch
	upkeep *upkeep.Upkeep
}

// die ends the server because it cannot be sure of its own state.
func (n *Node) die(err error) {
	if n.closed.Load() || !n.failed.CompareAndSwap(nil, &err) {
		return
	}
	n.log.Error("this server stops: its state or its storage cannot be trusted", "err", err)
	n.serving.end()
	n.o.Fatal(err)
}

// Err returns why the server ended, or nil.
func (n *Node) Err() error {
	if p := n.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// View runs f on the state under the read lock. f must neither block nor keep
// anything of the state.
func (n *Node) View(f func(*state.State)) {
	n.fsm.mu.RLock()
	defer n.fsm.mu.RUnlock()
	f(n.fsm.state)
}

// Ephemerals calls fn for the ephemeral nodes until it returns false. It reads them in pieces: a
// node that comes or goes during the call may be listed or not, and a node may be listed twice.
func (n *Node) Ephemerals(fn func(session int64, path string) (more bool)) {
	const most = 256 // nodes under one hold of the lock, fewer if paths are long
	type met struct {
		session int64
		end     int // of the path, in paths
	}
	piece, paths := make([]met, 0, most), make([]byte, 0, 8*most+tree.MaxPath)
	var walk tree.EphemeralWalk
	for more := true; more; {
		piece, paths = piece[:0], paths[:0]
		n.View(func(s *state.State) {
			more = walk.Next(s.Tree(), most, func(r tree.Ref) (cost int) {
				begin := len(paths)
				paths = r.PathOnto(paths)
				piece = append(piece, met{r.Session(), len(paths)})
				return 1 + (len(paths)-begin)/8
			})
		})
		begin := 0
		for _, m := range piece {
			if !fn(m.session, string(paths[begin:m.end])) {
				return
			}
			begin = m.end
		}
	}
}

// WaitZxid waits until this server has applied zxid, or ctx ends. A leader does not wait: no client
// has seen a newer state than the leader has applied.
func (n *Node) WaitZxid(ctx context.Context, zxid int64) bool {
	if n.term.Load() != nil {
		return n.fsm.zxid.Load() >= zxid
	}
	return n.fsm.wait(ctx.Done(), func() bool { return n.fsm.zxid.Load() >= zxid })
}

// Restore replaces the whole cluster's state by a backup; see restore.Restorer.
func (n *Node) Restore(ctx context.Context, backup io.Reader, size int64, keep bool) (
	restore.Restored, error) {
	return n.restorer.Restore(ctx, backup, size, keep)
}

// Snapshot writes a snapshot now.
func (n *Node) Snapshot() error { return n.upkeep.Snapshot() }

// Room says why this server's disk cannot take so many bytes; nil: it can.
func (n *Node) Room(bytes int64) error { return n.upkeep.Room(bytes) }

// Fits says why a backup of so many nodes and bytes cannot be this server's
// state; nil: it can.
func (n *Node) Fits(nodes int, bytes int64) error { return n.upkeep.Fits(nodes, bytes) }

// Zxid returns the zxid of the last change applied here.
func (n *Node) Zxid() int64 { return n.fsm.zxid.Load() }

// ID returns this server's id.
func (n *Node) ID() uint32 { return n.id }

// PeerAddr returns the address of the peer port, empty if there is none.
func (n *Node) PeerAddr() string {
	if n.port == nil {
		return ""
	}
	return n.port.Addr()
}
