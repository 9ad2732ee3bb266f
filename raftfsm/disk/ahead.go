package disk

import (
	"math"

	"github.com/hashicorp/raft"
)

// A seglog can run ahead of its disk: entries are readable when Append returns, and durable when Wait
// returns. Only a leader lets its log run ahead, and only for entries with clients' requests; decision 9
// explains why it is safe.

// Ahead lets the log run ahead of the disk while leads() reports true. raft's main loop calls leads(); no
// other goroutine gains or loses leadership. If `alone` is true, there are no other servers, and this server
// applies an entry as soon as raft has stored it. Then the goroutine that applies the entry writes it first:
// a goroutine that only writes would have to wake it afterwards.
func (d *Disk) Ahead(leads func() bool, alone bool) { d.leads.Store(&lead{leads, alone}) }

type lead struct {
	now   func() bool
	alone bool
}

// leading() reports whether this server leads.
func (d *Disk) leading() bool {
	lead := d.leads.Load()
	return lead != nil && lead.now()
}

// Durable returns an index up to which every stored entry is on the disk.
func (d *Disk) Durable() uint64 {
	if d.seg == nil {
		return math.MaxUint64
	}
	return d.seg.Durable()
}

// WaitDurable returns when every entry that was stored up to `index` is on the disk. If it returns an error,
// some entries may never be durable, and the server is about to end.
func (d *Disk) WaitDurable(index uint64) error {
	if d.seg == nil {
		return nil
	}
	return d.seg.Wait(index)
}

// mayRunAhead reports whether a server may store entries without waiting for the disk: a leader may, for
// entries of clients' requests. raft relies on every other entry as soon as it is stored, so such an entry
// waits for the disk.
func (d *Disk) mayRunAhead(logs []*raft.Log) bool {
	if d.seg == nil || !d.leading() {
		return false
	}
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			return false
		}
	}
	return true
}
