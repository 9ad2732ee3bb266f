package disk

import (
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// ahead is a log that can run ahead of its disk: entries are readable when
// Append returns, and durable when Wait does. Decision 9 says who uses that, and
// why it is safe: a leader, for the clients' entries, and nobody else.
type ahead interface {
	// Append: lazily, they are written when somebody waits for them.
	Append(entries []*raft.Log, lazily bool) error
	// Durable: whatever was appended up to this index is on the disk.
	Durable() uint64
	Wait(index uint64) error
	// Around has every write in the background run by f.
	Around(f func(what string, write func() error) error)
}

// watchAhead has the watchdog look after the log's own writes.
func (d *Disk) watchAhead() {
	if d.ahead, _ = d.stores.Log.(ahead); d.ahead == nil {
		return
	}
	d.ahead.Around(func(what string, write func() error) error {
		start := time.Now()
		err := d.dog.run(what, write)
		d.dog.syncs.Add(time.Since(start))
		return err
	})
}

// Ahead lets the log run ahead of the disk while leads reports true. leads is
// asked on raft's main loop, which alone gains and loses leadership. A server
// that is alone applies an entry as soon as it is stored: so whoever applies it
// may as well write it, and need not be woken when that is done.
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
	if d.ahead == nil {
		return math.MaxUint64
	}
	return d.ahead.Durable()
}

// WaitDurable returns when every entry that was stored up to index is on the
// disk. An error means that it never may be; the server is ending.
func (d *Disk) WaitDurable(index uint64) error {
	if d.ahead == nil {
		return nil
	}
	return d.ahead.Wait(index)
}

// waitAllDurable waits for everything that was stored.
func (d *Disk) waitAllDurable() error { return d.WaitDurable(math.MaxUint64) }

// mayRunAhead reports whether entries may be stored without waiting for the
// disk: what clients asked for, on a leader. Everything else that raft stores
// counts as soon as it is stored, so it waits.
func (d *Disk) mayRunAhead(logs []*raft.Log) bool {
	if d.ahead == nil || !d.leading() {
		return false
	}
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			return false
		}
	}
	return true
}

// Writing names the oldest write to the log, or of a term or a vote, that is
// under way; 0: none is.
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
