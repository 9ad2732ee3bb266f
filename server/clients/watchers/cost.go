package watchers

import "github.com/zlockd/zlockd/server/clients/outbox"

// maxTells bounds the cost, in steps, of the events of one change for all connections of an address. Beyond
// it, the server closes the connections that have not got their events yet. For a connection that watches
// exactly the changed node, an event costs 1/tellsInStep of a step. For a connection with a recursive watch,
// the events cost at least one step together. Besides, the address pays a step for each tellBytes of events.
const (
	maxTells    = 80_000
	tellsInStep = 4
	tellBytes   = 100
)

// heardBy returns the list in which the events of this portion for the connection c are collected. It adds an
// empty list if c has none yet.
func (t *Table) heardBy(c *Watcher) *heard {
	if c.hears == 0 {
		cut := t.charged(c.From) > maxTells*tellsInStep && t.shares.Bound()
		t.hears = append(t.hears, heard{c: c, cut: cut})
		c.hears = int32(len(t.hears))
	}
	return &t.hears[c.hears-1]
}

// charged() returns the steps that an address has been charged for the change so far.
func (t *Table) charged(from *Address) (steps int) {
	to := &from.change
	if to.steps == 0 {
		t.told = append(t.told, from)
		to.steps, to.alone = 1, from.Account.Buffers() == 0
		if t.shares.Indebted(&from.Account) {
			to.steps = maxTells*tellsInStep + 1
		}
	}
	return to.steps
}

// settle charges the addresses for the events of a change.
func (t *Table) settle() {
	for _, from := range t.told {
		from.Account.Charge(int64(min((from.change.steps+tellsInStep-1)/tellsInStep, maxTells)))
		from.change.steps = 0
	}
	t.told, t.lent = outbox.Cleared(t.told), false
	if len(t.asked) > 0 {
		t.asked = make(map[question]bool)
	}
}
