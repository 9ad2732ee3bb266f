package raftfsm

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// lookAtRoom decides whether requests that need more room are refused from now
// on. The decision travels with the entries, so that all servers agree; a log
// that can still be written keeps sessions, deletions and the cluster alive.
func (t *term) lookAtRoom() {
	low := t.lowest()
	why := low
	if why == "" {
		why = t.n.noRoom()
	}
	if full := why != ""; full != t.full.Swap(full) {
		if full {
			t.n.log.Warn("requests that need more room are refused", "reason", why)
		} else {
			t.n.log.Info("requests that need more room are taken again")
		}
	}
	if (low != "") != t.low.Swap(low != "") {
		t.n.addBarrier() // all servers are to know, before a client asks
	}
}

// lowest says which server's disk is low; empty: none. One is enough: a server
// that cannot store an entry ends.
func (t *term) lowest() string {
	if why := *t.n.lowDisk.Load(); why != "" {
		return why
	}
	return t.links.full()
}

// noRoom says why nothing that needs more room should be taken; empty: it may.
func (n *Node) noRoom() string {
	var nodes int
	var bytes int64
	n.View(func(s *state.State) { nodes, bytes = s.Tree().Count(), s.Tree().Bytes() })
	switch {
	case n.o.MaxNodes > 0 && nodes >= n.o.MaxNodes:
		return fmt.Sprintf("there are %d nodes, and no more than %d are allowed", nodes, n.o.MaxNodes)
	case n.o.MaxBytes > 0 && bytes >= n.o.MaxBytes:
		return fmt.Sprintf("the data are %d bytes, and no more than %d are allowed", bytes, n.o.MaxBytes)
	}
	return *n.lowDisk.Load()
}

const roomLook = 250 * time.Millisecond

// watchDisk looks how much room is left on this server's disk, in a goroutine of
// its own: a disk that hangs must not hold up those who ask.
func (n *Node) watchDisk() {
	tick := time.NewTicker(roomLook)
	defer tick.Stop()
	for {
		why := n.diskIsLow(0)
		n.lowDisk.Store(&why)
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// diskIsLow says why this server's disk would be low with so many bytes less
// free than now; empty: it would not.
func (n *Node) diskIsLow(less int64) string {
	free, err := n.o.FreeBytes(n.o.DataDir)
	if err != nil {
		return ""
	}
	reserve := max(n.o.DiskReserve, 2*n.disk.SnapshotSize())
	if free -= less; free < reserve {
		return fmt.Sprintf("the disk of %s has %d MiB left, less than the %d MiB kept free for log and snapshots", n.o.DataDir, free>>20, reserve>>20)
	}
	return ""
}
