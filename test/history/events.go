package history

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/watches"
)

// setWatches checks what a client learned when it reconnected, and renews its watches. What the client
// learned proves as much as a read of each node.
func (c *checker) setWatches(o *Op, record int) {
	if o.Watches == nil || o.Code != jute.OK {
		return
	}
	told := c.conns[o.Conn].catchUp[record]
	// next() removes the first event if it is about path and has one of two types, and returns its type.
	next := func(path string, a, b jute.EventType) jute.EventType {
		if len(told) == 0 || told[0].Path != path || told[0].Type != a && told[0].Type != b {
			return 0
		}
		t := told[0].Type
		told = told[1:]
		return t
	}
	w := o.Watches
	for _, path := range w.Data {
		switch next(path, jute.EventDeleted, jute.EventDataChanged) {
		case jute.EventDeleted:
			c.caughtGone(path, o, record)
		case jute.EventDataChanged:
			if n := c.caughtThere(path, o, record); n != nil && n.mzxid != unknown && n.mzxid <= w.RelativeZxid &&
				!possible(c.loose.sets[path], n.seenState, o.Zxid) && !c.reborn(n, o.Zxid) {
				c.fail("G16", record, "%s was not set after zxid %d", path, w.RelativeZxid)
			}
		default:
			if n := c.caughtThere(path, o, record); c.hidden(path, o) {
				c.doubt(o, path, watches.Data)
				continue
			} else if n != nil && n.mzxid > w.RelativeZxid {
				c.fail("G17", record, "the client was not told that %s was set at zxid %d", path, n.mzxid)
			}
			c.rearm(o, path, watches.Data)
		}
	}
	for _, path := range w.Exist {
		if next(path, jute.EventCreated, jute.EventCreated) != 0 {
			c.caughtThere(path, o, record)
			continue
		}
		if c.hidden(path, o) {
			c.doubt(o, path, watches.Data)
			continue
		}
		c.caughtGone(path, o, record)
		c.rearm(o, path, watches.Data)
	}
	for _, path := range w.Child {
		switch next(path, jute.EventDeleted, jute.EventChildrenChanged) {
		case jute.EventDeleted:
			c.caughtGone(path, o, record)
		case jute.EventChildrenChanged:
			if n := c.caughtThere(path, o, record); n != nil && !n.pzLoose && n.pzxid != unknown &&
				n.pzxid <= w.RelativeZxid {
				if made, gone := c.open(n, o.Zxid); made+gone == 0 {
					c.fail("G16", record, "the children of %s did not change after zxid %d", path, w.RelativeZxid)
				}
			}
		default:
			if n := c.caughtThere(path, o, record); c.hidden(path, o) {
				c.doubt(o, path, watches.Child)
				continue
			} else if n != nil && n.pzxid > w.RelativeZxid {
				c.fail("G17", record, "the client was not told that the children of %s changed at zxid %d", path, n.pzxid)
			}
			c.rearm(o, path, watches.Child)
		}
	}
	for _, path := range w.Persistent {
		c.rearm(o, path, watches.Persistent)
	}
	for _, path := range w.Recursive {
		c.rearm(o, path, watches.Recursive)
	}
	for _, e := range told {
		c.fail("G16", record, "%v %s answers nothing that was asked", e.Type, e.Path)
	}
}

func (c *checker) rearm(o *Op, path string, k watches.Kind) {
	if c.within(path) {
		c.watch(o.Conn, path, k)
	}
}

func (c *checker) caughtThere(path string, o *Op, record int) *node {
	if !c.within(path) {
		return nil
	}
	return c.there(path, o.Zxid, record, "its watch was renewed or caught up")
}

func (c *checker) caughtGone(path string, o *Op, record int) {
	if c.within(path) {
		c.missing(path, o.Zxid, record, "its watch was renewed or caught up")
	}
}

// checkEvents checks that each connection received the events that it should have received, in the same
// order, and each before the first reply that shows its change.
func (c *checker) checkEvents() {
	for _, k := range c.conns {
		want := k.expect
		shown, last, catchingUp := int64(0), int64(0), -1
		for _, i := range k.records {
			if o := c.records[i].Op; o != nil {
				if catchingUp >= 0 && o.Watches == nil {
					c.fail("G16", catchingUp, "an event of no change, and no setWatches to answer")
				}
				catchingUp = -1
				for len(want) > 0 && want[0].zxid <= o.Zxid {
					if !want[0].maybe && (o.Op != jute.OpCloseSession || want[0].zxid < o.Zxid) {
						c.fail("G17", i, "the event %v %s of zxid %d had not been sent", want[0].typ, want[0].path,
							want[0].zxid)
					}
					want = want[1:]
				}
				shown = max(shown, o.Zxid)
				continue
			}
			e := c.records[i].Event
			if e.Zxid <= 0 {
				catchingUp = i
				continue
			}
			if !c.within(e.Path) {
				continue
			}
			if e.Zxid < last {
				c.fail("G16", i, "an event of zxid %d had come before", last)
			}
			last = max(last, e.Zxid)
			if e.Zxid <= shown {
				c.fail("G15", i, "zxid %d had been shown before", shown)
				continue
			}
			want = c.match(e, i, want)
		}
	}
}

// match() finds e among the expected events and returns those after it.
func (c *checker) match(e *Event, record int, want []expected) []expected {
	at := -1
	for j, w := range want {
		if w.zxid > e.Zxid {
			break
		}
		if w.zxid == e.Zxid && w.typ == e.Type && w.path == e.Path {
			at = j
			break
		}
	}
	if at < 0 {
		c.fail("G16", record, "no watch of the connection waits for a change like this")
		return want
	}
	for at > 0 && (want[0].zxid < e.Zxid || !want[0].end) {
		if w := want[0]; !w.maybe {
			c.fail("G17", record, "the event %v %s of zxid %d had not been sent", w.typ, w.path, w.zxid)
		}
		want, at = want[1:], at-1
	}
	// The nodes of an ended session go in no certain order: the events that were skipped may still come.
	copy(want[1:at+1], want[:at])
	return want[1:]
}
