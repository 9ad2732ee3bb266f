package watchers

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// Tell sends the events of a change to all watchers.
func (t *Table) Tell(zxid int64, events []tree.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range events {
		t.zxid, t.event, t.left, t.encoded = zxid, &events[i], len(events)-i, false
		t.table.FireAt(t.event.Type, t.event.Path, t.hear, t.above)
		if len(t.b) >= portionBytes || t.runs >= portionRuns {
			t.deliver()
		}
	}
	t.event = nil
	if len(t.hears) > 0 || len(t.deep) > 0 {
		t.deliver()
	}
	if len(t.told) > 0 {
		t.settle()
	}
}

// number() returns the number, in this portion, of the event that the tree reports.
func (t *Table) number() int {
	if !t.encoded {
		t.encoded = true
		if t.b == nil {
			size := 4 + jute.ReplyHeaderSize + 12 + len(t.event.Path)
			t.b = make([]byte, 0, max(size, min(t.left*size, portionBytes)))
		}
		t.b = jute.AppendEventFrame(t.b, t.zxid, t.event.Type, t.event.Path)
		t.events = append(t.events, event{end: len(t.b), what: t.event.Type})
	}
	return len(t.events) - 1
}

// hearOne adds the event for a connection that watches the event's path, if the client may read the node.
func (t *Table) hearOne(c *Watcher) {
	h := t.heardBy(c)
	if h.cut {
		return
	}
	c.From.change.steps++
	if !t.mayRead(c.From, c.IDs.Load(), t.event.ACL) {
		return
	}
	n := t.number()
	if h.last.to != n {
		t.runs++
		h.close()
		h.last.from = n
	}
	h.last.to = n + 1
}

// aboveOne collects the event that the tree reports for the recursive watches at `path`, a path above its
// node.
func (t *Table) aboveOne(path uint32) {
	at, ok := t.deepOf[path]
	if !ok {
		at = len(t.deep)
		t.deep = append(t.deep, deep{path: path})
		t.deepOf[path] = at
	}
	acl := t.event.ACL
	if acl.Allows(nil, jute.PermRead) {
		acl = nil
	}
	d, n := &t.deep[at], t.number()
	before := len(d.runs)
	d.runs = extend(d.runs, run{n, n + 1, acl})
	d.asks = d.asks || acl != nil
	t.runs += len(d.runs) - before
}

// hearDeep collects, for one connection, the events that its recursive watch has caught, as far as the client
// may read their nodes.
func (t *Table) hearDeep(c *Watcher, d *deep) {
	h := t.heardBy(c)
	if h.cut {
		return
	}
	runs := d.runs
	if d.asks {
		if ids := c.IDs.Load(); d.ids != ids {
			d.ids, d.heard = ids, nil
			c.From.change.steps += len(d.runs)
			for _, r := range d.runs {
				if r.acl == nil || t.mayRead(c.From, ids, r.acl) {
					d.heard = extend(d.heard, run{r.from, r.to, nil})
				}
			}
		}
		runs = d.heard
	}
	c.From.change.steps += tellsInStep + len(runs)
	h.close()
	if len(h.runs) > 0 {
		runs = union(h.runs, runs)
	}
	h.runs = runs[:len(runs):len(runs)]
}

// mayRead reports whether a client may read a node with this ACL. If the client has many identities, mayRead
// keeps the answer until the end of the change.
func (t *Table) mayRead(from *Address, ids *[]jute.ID, set *acl.Set) bool {
	if len(*ids) <= fewIDs {
		return set.Allows(*ids, jute.PermRead)
	}
	q := question{ids, set}
	may, known := t.asked[q]
	if !known {
		from.change.steps += len(*ids) / 2 * tellsInStep
		may = set.Allows(*ids, jute.PermRead)
		t.asked[q] = may
	}
	return may
}

// fewIDs is the largest number of identities for which mayRead does not keep its answers.
const fewIDs = 4

// deliver appends the events of this portion to the outboxes.
func (t *Table) deliver() {
	for i := range t.deep {
		t.table.Deep(t.deep[i].path, func(c *Watcher) { t.hearDeep(c, &t.deep[i]) })
	}
	for i := range t.hears {
		t.hand(&t.hears[i])
	}
	t.outboxes.Told(t.touched)
	t.count()
	for _, from := range t.told {
		from.change.loan.Put()
		from.change.loan = nil
	}
	if t.shared || cap(t.b) > outbox.KeepSize {
		t.b = nil
	}
	clear(t.deepOf)
	t.b, t.events, t.runs, t.shared, t.portion = t.b[:0], t.events[:0], 0, false, nil
	t.hears, t.deep, t.touched = outbox.Cleared(t.hears), outbox.Cleared(t.deep), outbox.Cleared(t.touched)
}

// hand appends the events for one connection to its outbox.
func (t *Table) hand(h *heard) {
	c := h.c
	c.hears = 0
	if h.cut {
		c.Out.Kill(ends.Events)
		return
	}
	last := h.last.from != h.last.to
	if !last && len(h.runs) == 0 {
		return
	}
	l, room := t.loan(c)
	o := c.Out
	o.Lock()
	defer o.Unlock()
	if !room && o.Open() {
		o.Die(ends.Slow)
	}
	if c.Out.Accepts() {
		for _, r := range h.runs {
			t.handRun(o, r, l)
		}
		if last {
			t.handRun(o, h.last, l)
		}
		c.Out.Grown(true)
	}
	if o.Hears() {
		t.touched = append(t.touched, o)
	}
}

// handRun appends the events of a run to an outbox.
func (t *Table) handRun(o *outbox.Outbox, r run, l *budget.Loan) {
	from, to := 0, t.events[r.to-1].end
	if r.from > 0 {
		from = t.events[r.from-1].end
	}
	t.shared = o.Tell(t.b, from, to, r.to-r.from, l) || t.shared
	if t.events[r.from].to++; r.to < len(t.events) {
		t.events[r.to].to--
	}
}

// count() adds the number of receivers of this portion's events to the metrics.
func (t *Table) count() {
	to, from := 0, 0
	for _, e := range t.events {
		if to += e.to; to > 0 {
			t.noteFired(e.what, to, e.end-from)
		}
		from = e.end
	}
}

// noteFired counts the watches that one event has fired.
func (t *Table) noteFired(e jute.EventType, told, size int) {
	m := t.outboxes.Metrics
	m.WatchBytes.Add(int64(told * size))
	switch e {
	case jute.EventCreated:
		m.NodeCreatedWatch.Observe(int64(told))
	case jute.EventDeleted:
		m.NodeDeletedWatch.Observe(int64(told))
	case jute.EventDataChanged:
		m.NodeChangedWatch.Observe(int64(told))
	case jute.EventChildrenChanged:
		m.NodeChildrenWatch.Observe(int64(told))
	}
}
