package raftfsm

import (
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// noRoom says why to refuse requests that need more room; empty: there is room.
func (n *Node) noRoom() string {
	var nodes int
	var bytes int64
	n.View(func(s *state.State) { nodes, bytes = s.Tree().Count(), s.Tree().Bytes()+s.Tree().ACLBytes() })
	switch {
	case n.o.MaxNodes > 0 && nodes >= n.o.MaxNodes:
		return fmt.Sprintf("there are %d nodes, and no more than %d are allowed", nodes, n.o.MaxNodes)
	case n.o.MaxBytes > 0 && bytes >= n.o.MaxBytes:
		return fmt.Sprintf("the data and ACLs are %d bytes, and no more than %d are allowed", bytes,
			n.o.MaxBytes)
	}
	return *n.lowDisk.Load()
}

const roomLook = 250 * time.Millisecond

// watchDisk looks how much room is left on this server's disk, in a goroutine of its own: a disk
// that hangs must not hold up the goroutines that ask.
func (n *Node) watchDisk() {
	for more := true; more; more = signal.Pause(n.ctx, n.raft.Beat(roomLook)) {
		why := n.diskIsLow(0)
		n.lowDisk.Store(&why)
	}
}

// diskIsLow says why this server's disk would be low with so many bytes less
// free than now; empty: it would not.
func (n *Node) diskIsLow(less int64) string {
	free, err := n.o.FreeBytes(n.o.DataDir)
	if err != nil {
		return ""
	}
	snapshot, _ := n.disk.NewestSnapshot()
	reserve := max(n.o.DiskReserve, 2*snapshot)
	if free -= less; free < reserve {
		return fmt.Sprintf(
			"the disk of %s has %d MiB left, less than the %d MiB kept free for log and snapshots",
			n.o.DataDir, free>>20, reserve>>20)
	}
	return ""
}

// ErrNoRoom marks a disk that would be low.
var ErrNoRoom = errors.New("no room")

// Room says why this server's disk cannot take so many bytes; nil: it can.
func (n *Node) Room(bytes int64) error {
	if n.disk.InMemory() || n.o.DiskReserve < 0 {
		return nil
	}
	if why := n.diskIsLow(bytes); why != "" {
		return fmt.Errorf("%w: %s; make some and try again", ErrNoRoom, why)
	}
	return nil
}

// Fits says why a backup of so many nodes and bytes cannot be this server's
// state; nil: it can.
func (n *Node) Fits(nodes int, bytes int64) error {
	switch {
	case n.o.MaxNodes > 0 && nodes > n.o.MaxNodes:
		return fmt.Errorf("the backup has %d nodes, and no more than %d are allowed", nodes, n.o.MaxNodes)
	case n.o.MaxBytes > 0 && bytes > n.o.MaxBytes:
		return fmt.Errorf("the data of the backup are %d bytes, and no more than %d are allowed", bytes,
			n.o.MaxBytes)
	}
	return nil
}
