package disk

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// StandIn is the type of the entry that the log returns in place of an entry that only a snapshot covers.
// raft does nothing with such an entry but compare it with an entry of the leader.
const StandIn = raft.LogType(255)

// covered remembers the entries that snapshots have replaced in a follower's log. raft does not know of that.
// Before it stores new entries, it still looks up the entry before them, and the entries that were replaced,
// to compare them with the leader's. Without this record raft would not find them and refuse the new entries,
// and the leader would send the snapshot again and again. So covered holds
//
//   - the term of the entry at which each of the last two snapshots was taken;
//   - the last index of the log when a snapshot replaced all of it. raft still expects these entries in the
//     log, and learns from covered that they differ from the leader's.
type covered struct {
	mu     sync.Mutex
	ends   [2]raft.Log // last log entry in each of the two newest snapshots; the newest snapshot comes first
	config config      // last index of a log that a snapshot replaced; 0 once new entries are stored
	gone   uint64      // last index of a log that a snapshot replaced; 0: entries have been stored since

	sent uint64 // last index of the newest snapshot of another server; set before it is published
	own  bool   // this server's own snapshot is finished, and raft has not recorded it yet
}

// snapshot() records that a snapshot up to an entry is on the disk.
func (c *covered) snapshot(index, term uint64, members config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends[0].Index != index {
		c.ends[1] = c.ends[0]
	}
	c.ends[0], c.config = raft.Log{Index: index, Term: term}, members
}

// beginOwn begins a snapshot of this server's own state. It returns an error if another server has sent a
// newer snapshot.
func (c *covered) beginOwn(index uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest := max(c.ends[0].Index, c.sent); newest > index {
		return fmt.Errorf("another server has sent a snapshot up to entry %d while this server wrote its own, "+
			"up to entry %d",
			newest, index)
	}
	c.own = true
	return nil
}

// beginSent refuses a snapshot of another server until raft has recorded this server's own snapshot.
// Otherwise raft would record its own snapshot after the other server's, and take its own for the newest.
func (c *covered) beginSent(index uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own {
		return errors.New("this server has just finished its own snapshot")
	}
	c.sent = index
	return nil
}

// ownDone records that raft is done with the snapshot for which beginOwn was called.
func (c *covered) ownDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = false
}

// newest() returns the index of the last entry of the newest snapshot.
func (c *covered) newest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[0].Index
}

// emptied() records that the whole log was removed; `last` was the index of its last entry. It returns the
// configuration that is valid now.
func (c *covered) emptied(last uint64) config {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = last
	return c.config
}

// stored() forgets the entries that a snapshot replaced: raft has stored new entries, and no longer expects
// the replaced ones in the log.
func (c *covered) stored() {
	c.mu.Lock()
	c.gone = 0
	c.mu.Unlock()
}

// get() sets `l` to the stand-in for an entry that is not in the log. It reports whether there is a stand-in.
func (c *covered) get(index uint64, l *raft.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.ends {
		if end.Index == index && index > 0 {
			*l = raft.Log{Index: index, Term: end.Term, Type: StandIn}
			return true
		}
	}
	if c.ends[0].Index < index && index <= c.gone {
		*l = raft.Log{Index: index, Type: StandIn} // term 0, which no entry of the leader has
		return true
	}
	return false
}

// dropReplaced empties the log if its history differs from that of the newest snapshot. That happens if the
// process ended after it had published a snapshot of another server, and before it emptied the log. raft
// would look up the last entry of the snapshot in this log and refuse the leader's entries after it. Then the
// leader would send the snapshot again and again.
func (d *Disk) dropReplaced() error {
	c, err := d.stores.content()
	if err != nil {
		return err
	}
	var l raft.Log
	err = d.stores.Log.GetLog(c.snapshot.Index, &l)
	switch {
	// nothing to drop: the log ends before the snapshot's last entry, or begins after it
	case errors.Is(err, raft.ErrLogNotFound):
		return nil
	case err != nil || Follows(&c.snapshot, &l):
		return err
	}
	return d.Log().DeleteRange(c.first, c.last)
}

// Follows reports whether a log that holds this entry has the same history as a snapshot.
func Follows(s *raft.SnapshotMeta, l *raft.Log) bool { return l.Index != s.Index || l.Term == s.Term }
