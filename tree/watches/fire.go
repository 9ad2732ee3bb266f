package watches

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Fire calls tell() once for every connection that waits for an event, and removes the one-shot watches that
// the event fires. A deletion fires the watches for data and the watches for children. A change of a list of
// children is an event of its own.
func (w *Table[W]) Fire(e jute.EventType, path string, tell func(W)) {
	w.FireAt(e, path, tell, func(p uint32) { w.fire(w.paths.at(p).deep, recursiveMode, tell) })
}

// FireAt does what Fire does, but only for the connections that watch the path of the event itself. For each
// higher path that has Recursive watches, FireAt calls above() with the number of the path. The caller can
// then list the connections of such a path with Deep, once for many events.
func (w *Table[W]) FireAt(e jute.EventType, path string, tell func(W), above func(path uint32)) {
	var match modes
	switch e {
	case jute.EventCreated, jute.EventDataChanged:
		match = dataRegistry
	case jute.EventDeleted:
		match = dataRegistry | childRegistry
	case jute.EventChildrenChanged:
		match = childRegistry
	}
	w.turn++
	if p, ok := w.byPath.m[path]; ok {
		deep := w.paths.at(p).deep // read `deep` first: the path may be removed with its last plain record
		w.fire(w.paths.at(p).plain, match, tell)
		w.fire(deep, match, tell)
		if idx, ok := w.big[p]; ok {
			for _, c := range w.gone {
				delete(idx, c)
			}
		}
		w.gone = w.gone[:0]
	}
	if match&recursiveMode == 0 || len(w.recursive.m) == 0 {
		return
	}
	for path != "/" {
		path = path[:max(1, strings.LastIndexByte(path, '/'))]
		if p, ok := w.recursive.m[path]; ok {
			above(p)
		}
	}
}

// Deep calls f for each connection with a Recursive watch at the path with this number. The number must come
// from a call of FireAt after the last removal of a Recursive watch.
func (w *Table[W]) Deep(path uint32, f func(W)) {
	at := w.paths.at(path)
	for r := at.deep; r != 0; r = w.after(at, r) {
		if c := w.conns.at(w.records.at(r).conn); !c.dead {
			f(c.conn)
		}
	}
}

// fire() goes through one ring of a path.
func (w *Table[W]) fire(first uint32, match modes, tell func(W)) {
	if first == 0 {
		return
	}
	last := w.records.at(first).in[ofPath].prev
	for r := first; ; {
		rec := w.records.at(r)
		next := rec.in[ofPath].next
		c := w.conns.at(rec.conn)
		if rec.modes&match != 0 && !c.dead {
			if c.told != w.turn {
				c.told = w.turn
				tell(c.conn)
			}
			if left := rec.modes &^ (match & oneShot); left != rec.modes {
				if left == 0 && w.paths.at(rec.path).status == pathIndexed {
					// Remove the connection from `big` later: if all connections at the path are told, the
					// whole index is removed at once.
					w.gone = append(w.gone, rec.conn)
				}
				w.set(r, left)
			}
		}
		if r == last {
			return
		}
		r = next
	}
}
