package watchers

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// A change with many events is delivered in portions. These are the bounds of a portion: bytes of its events
// (roughly), and runs.
const (
	portionBytes = 256 << 10
	portionRuns  = 16 << 10
)

// telling moves the events of a change from the tree into outboxes, in portions if there are many. It encodes
// each event once, into a buffer to which the outboxes of all its receivers point. While the tree reports the
// events, telling notes their numbers as runs: for each connection, and for each path with recursive watches.
// At the end of the portion it gives each outbox all its runs at once.
//
// Table.mu guards all of it. Only the goroutine that applies the log uses it.
type telling struct {
	zxid    int64
	event   *tree.Event // the event that the tree reports
	left    int         // remaining events of the change, including this one
	encoded bool        // `event` is in `b`

	b      []byte  // the encoded events of this portion
	events []event // the end in b, the type and the receivers of each event
	hears  []heard // runs for connections' own watches
	deep   []deep  // runs for paths with recursive watches
	deepOf map[uint32]int
	runs   int  // number of runs in `hears` and `deep`
	shared bool // an outbox points into `b`

	portion *budget.Portion // the portion in `b`, if Memory counts it
	free    bool            // Memory had nothing in use when the change lent its first portion
	lent    bool            // a portion of the change was lent before
	told    []*Address      // addresses that were told of the change
	asked   map[question]bool
	touched []*outbox.Outbox // outboxes that have got events of this portion
}

// event is an encoded event of a portion.
type event struct {
	end  int // where the event ends in b
	what jute.EventType
	to   int // number of this event's receivers, minus the number for the event before it
}

// run is a series of adjacent events of a portion. If `acl` is set, the client must be allowed to read nodes
// with this ACL, and that is not checked yet.
type run struct {
	from, to int
	acl      *acl.Set
}

// heard collects the events for one connection.
type heard struct {
	c    *Watcher
	cut  bool  // this connection gets no event: those for its address cost more than maxTells
	last run   // empty if `from` equals `to`
	runs []run // the runs before `last`; other connections may share the slice
}

// deep collects the events for the connections with a recursive watch at one path.
type deep struct {
	path  uint32
	asks  bool // at least one run has an ACL
	runs  []run
	ids   *[]jute.ID // the identities for which `heard` was computed last
	heard []run      // which of `runs` a connection with these identities may see
}

// question asks whether a client with these identities may read a node with this ACL.
type question struct {
	ids *[]jute.ID
	acl *acl.Set
}

// extend appends the run r to `runs`. All other runs come before r.
func extend(runs []run, r run) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].to == r.from && runs[last].acl == r.acl {
		runs[last].to = r.to
		return runs
	}
	return append(runs, r)
}

// union returns the events that are in a, in b, or in both. The runs have no ACL. union changes neither list.
func union(a, b []run) (all []run) {
	for len(a) > 0 || len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && b[0].from < a[0].from {
			a, b = b, a
		}
		next := a[0]
		a = a[1:]
		if last := len(all) - 1; last >= 0 && next.from <= all[last].to {
			all[last].to = max(all[last].to, next.to)
		} else {
			all = append(all, next)
		}
	}
	return all
}

// close() appends `last` to `runs`, if it has any event, and empties it.
func (h *heard) close() {
	if h.last.from != h.last.to {
		h.runs, h.last = append(h.runs, h.last), run{}
	}
}

// loan counts the memory of this portion for c's address, unless it does so already. It returns nil and true
// for a short portion, which is not counted. `room` is false if there is no room for the portion, even after
// loan has closed connections that do not read.
func (t *Table) loan(c *Watcher) (l *budget.Loan, room bool) {
	to := &c.From.change
	if to.loan != nil {
		return to.loan, true
	}
	to.steps += len(t.b) / tellBytes * tellsInStep
	if len(t.b) < budget.LoanFrom {
		return nil, true
	}
	m := t.outboxes.Memory
	if t.portion == nil {
		t.portion = budget.NewPortion(len(t.b))
	}
	if !t.lent {
		t.lent, t.free = true, m.Used() == 0
	}
	for {
		l, own := m.Lend(&c.From.Account, t.portion, to.alone, t.free)
		if l != nil {
			to.loan = l
			return l, true
		}
		slow, _ := m.Slowest(c.Out.Owner(), own)
		if slow == nil {
			return nil, false
		}
		slow.(killer).Kill(ends.Slow)
		m.Drop(slow)
	}
}

// killer is a connection with the method Kill. The goroutine that applies the log ends connections by Kill,
// because it must not touch a socket.
type killer interface{ Kill(ends.Reason) }
