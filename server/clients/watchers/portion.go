package watchers

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// telling moves the events of a change from the tree into outboxes. It encodes each event once, into a buffer
// that the outboxes of all its receivers share. While the tree reports the events, telling collects runs of
// event numbers for each connection and for each path with recursive watches. Then each outbox gets all its
// runs at once. A change with many events is delivered in portions.
//
// All of it is under Table.mu, in the goroutine that applies the log.
type telling struct {
	zxid    int64
	event   *tree.Event // the event that the tree reports
	left    int         // remaining events of the change, with this one
	encoded bool        // this event

	b      []byte  // the encoded events of this portion
	events []event // data about the events beyond their encoding
	hears  []heard // runs for connections' own watches
	deep   []deep  // runs for paths with recursive watches
	deepOf map[uint32]int
	runs   int  // number of runs in hears and deep
	shared bool // an outbox points into b

	portion *budget.Portion // the portion in b, if srv.memory counts it
	free    bool            // no memory was in use when the change lent its first portion
	lent    bool            // the change has lent a portion
	told    []*Address      // addresses that were told of the change
	asked   map[question]bool
	touched []*outbox.Outbox // have got something
}

// event is an encoded event of a portion.
type event struct {
	end  int // where it ends in b
	what jute.EventType
	to   int // number of receivers of this event minus that of the event before
}

// run is a series of adjacent events of a portion. If acl is not nil, it is the ACL of their nodes, and a
// client's right to read them is still unchecked.
type run struct {
	from, to int
	acl      *acl.Set
}

// heard collects the events for one connection.
type heard struct {
	c    *Watcher
	cut  bool  // the address exceeds maxTells
	last run   // empty if from equals to
	runs []run // the runs before last; other connections may share the slice
}

// deep collects the events for the connections with a recursive watch at one path.
type deep struct {
	path  uint32
	asks  bool // at least one run has an ACL
	runs  []run
	ids   *[]jute.ID // the identities of the last connection for which runs was checked
	heard []run      // the events that a connection with these identities gets
}

// question is a check whether a client with these identities may read a node with this ACL.
type question struct {
	ids *[]jute.ID
	acl *acl.Set
}

// extend adds later events to runs.
func extend(runs []run, r run) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].to == r.from && runs[last].acl == r.acl {
		runs[last].to = r.to
		return runs
	}
	return append(runs, r)
}

// union returns the events that are in a or in b, whose runs have no ACL. It changes neither.
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

// close moves last to the other runs.
func (h *heard) close() {
	if h.last.from != h.last.to {
		h.runs, h.last = append(h.runs, h.last), run{}
	}
}
