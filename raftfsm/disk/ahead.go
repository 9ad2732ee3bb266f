package disk

import (
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
)

// A seglog can run ahead of its disk: entries are readable when Append returns, and durable when Wait
// returns. Only a leader uses that, for the clients' entries; decision 9 says why it is safe.

// watchAhead lets the watchdog watch the log's own writes.
func (d *Disk) watchAhead() {
	if d.seg, _ = d.stores.Log.(*seglog.Log); d.seg == nil {
		return
	}
	d.seg.Around(func(what string, write func() error) error {
		start := time.Now()
		err := d.dog.run(what, write)
		d.dog.syncs.Add(time.Since(start))
		return err
	})
}

// Ahead lets the log run ahead of the disk while leads reports true. raft's main loop calls leads;
// it alone gains and loses leadership. A server that is alone applies an entry as soon as it is
// stored: so the goroutine that applies the entry may as well write it, and need not be woken
// after the write.
func (d *Disk) Ahead(leads func() bool, alone bool) { d.leads.Store(&lead{leads, alone}) }

type lead struct {
	now   func() bool
	alone bool
}

// leading reports whether this server leads.
func (d *Disk) leading() bool {
	lead := d.leads.Load()
	return lead != nil && lead.now()
}

// Durable returns an index up to which every entry that was ever stored is on
// the disk.
func (d *Disk) Durable() uint64 {
	if d.seg == nil {
		return math.MaxUint64
	}
	return d.seg.Durable()
}

// WaitDurable returns when every entry that was stored up to index is on the disk. An error means
// that some may never be; the server is ending.
func (d *Disk) WaitDurable(index uint64) error {
	if d.seg == nil {
		return nil
	}
	return d.seg.Wait(index)
}

// mayRunAhead reports whether a server may store entries without waiting for the disk: a leader
// may, for entries of clients' requests. Every other entry counts as soon as raft has stored it,
// so it waits.
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

// Writing returns the number of the oldest running write to the log, or of a term or a vote; 0: no
// such write runs.
func (d *Disk) Writing() (call uint64) {
	d.dog.mu.Lock()
	defer d.dog.mu.Unlock()
	for c := range d.dog.calls {
		switch c.what {
		case "append", "StoreLogs", "DeleteRange", "Set", "SetUint64":
			if call == 0 || c.nth < call {
				call = c.nth
			}
		}
	}
	return call
}
