package raftfsm

import "slices"

// Entries stay in the log behind a snapshot for servers that were away for a moment: without these
// entries they would have to be sent the snapshot. They are bounded in entries and in bytes, for an
// entry can be as long as a request may be.

// trailingLeast is how many entries stay however long they are. It must be well
// above what a leader has under way: a server that holds an entry that was never
// committed, and is sent a snapshot, needs the entries around that place.
const trailingLeast = 64

// trailingMost times TrailingBytes may stay for servers that follow and are
// behind; one further behind is better served by a snapshot.
const trailingMost = 4

// trailingSmall is how many bytes of entries stay behind a small snapshot. Behind a larger snapshot
// as many bytes stay as it has itself: a server that needs more of the log is sent the snapshot
// sooner.
const trailingSmall = 16 << 20

// trailing returns how many entries stay behind the next snapshot.
func (n *Node) trailing() uint64 {
	most := n.o.TrailingLogs
	last := n.raft.LastIndex()
	kept := func(bytes int64) uint64 {
		from := n.disk.LogWithin(bytes)
		if from == 0 {
			return most // the log store cannot tell
		}
		return last + 1 - min(from, last+1)
	}
	size, _ := n.disk.NewestSnapshot()
	keep := kept(min(n.o.TrailingBytes, max(size, trailingSmall)))
	if t := n.term.Load(); t != nil {
		var behind []uint64
		for _, at := range t.links.progress() {
			behind = append(behind, last-min(at, last))
		}
		if len(behind) > 0 {
			keep = max(keep, min(slices.Max(behind)+trailingLeast, kept(trailingMost*n.o.TrailingBytes)))
		}
	}
	return min(max(keep, trailingLeast), most)
}

// boundTrailing tells raft how much of the log may stay.
func (n *Node) boundTrailing() error {
	conf := n.raft.ReloadableConfig()
	conf.TrailingLogs = n.trailing()
	return n.raft.ReloadConfig(conf)
}
