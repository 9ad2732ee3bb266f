package raftfsm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lookAtRoom decides whether requests that need more room are refused from now
// on. The decision travels with the entries, so that all servers agree; a log
// that can still be written keeps sessions, deletions and the cluster alive.
func (t *term) lookAtRoom() {
	why := t.n.noRoom()
	if full := why != ""; full != t.full.Swap(full) {
		if full {
			t.n.log.Warn("requests that need more room are refused", "reason", why)
		} else {
			t.n.log.Info("requests that need more room are taken again")
		}
	}
}

// noRoom says why nothing that needs more room should be taken; empty: it may.
func (n *Node) noRoom() string {
	var nodes int
	var bytes int64
	n.View(func(s *State) { nodes, bytes = s.tree.Count(), s.tree.Bytes() })
	switch {
	case n.o.MaxNodes > 0 && nodes >= n.o.MaxNodes:
		return fmt.Sprintf("there are %d nodes, and no more than %d are allowed", nodes, n.o.MaxNodes)
	case n.o.MaxBytes > 0 && bytes >= n.o.MaxBytes:
		return fmt.Sprintf("the data are %d bytes, and no more than %d are allowed", bytes, n.o.MaxBytes)
	case n.dir == nil || n.o.DiskReserve < 0:
		return ""
	}
	free, err := n.o.FreeBytes(n.o.DataDir)
	if err != nil {
		return ""
	}
	reserve := n.o.DiskReserve
	if snaps, err := n.stores.Snapshots.List(); err == nil && len(snaps) > 0 {
		reserve = max(reserve, 2*snaps[0].Size)
	}
	if free < reserve {
		return fmt.Sprintf("the disk of %s has %d MiB left, less than the %d MiB kept free for log and snapshots", n.o.DataDir, free>>20, reserve>>20)
	}
	return ""
}

// FreeBytes is what a process without privileges may still write.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
