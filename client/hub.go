package client

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watchKind tells the two tables of watches of a server apart.
type watchKind uint8

const (
	watchData     watchKind = iota // by getData and exists
	watchChildren                  // by getChildren
)

// evReattached tells a watcher that the session has a new connection: whatever
// it waits for must be read again, in case the watch was not set again there.
const evReattached zk.EventType = -100

type watchKey struct {
	path string // as on the server
	kind watchKind
}

// watch is a standing wish to hear of one change. The event is stored: it cannot
// be missed by looking late.
type watch struct {
	key     watchKey
	done    chan struct{}
	ev      zk.EventType // set before done is closed
	armed   bool         // the server has it. Guarded by hub.mu, as is pending
	pending int          // requests under way that may arm it
}

// C is closed when the watch fired.
func (w *watch) C() <-chan struct{} { return w.done }

// event is valid once C is closed.
func (w *watch) event() zk.EventType { return w.ev }

func (w *watch) fired() bool {
	return isClosed(w.done)
}

// hub shares watches: at most one is outstanding at the server per path and kind,
// and one nobody waits for any more stays and is used again, because the library
// cannot remove watches. Their number is thus bounded by the number of living
// paths, not of waits.
//
// Events come by the library's callback, in the order of the wire, so an entry
// exists before the request that arms it is sent.
type hub struct {
	mu      sync.Mutex
	entries map[watchKey]*watch
}

func newHub() *hub { return &hub{entries: map[watchKey]*watch{}} }

func (h *hub) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.entries)
}

// prepare returns the watch for a request about to be sent; settle must follow.
func (h *hub) prepare(path string, kind watchKind) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := watchKey{path, kind}
	w := h.entries[k]
	if w == nil {
		w = &watch{key: k, done: make(chan struct{})}
		h.entries[k] = w
	}
	w.pending++
	return w
}

// needed reports whether the request must ask the server for the watch.
func (h *hub) needed(w *watch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !w.armed
}

// settle notes whether the server has the watch now.
func (h *hub) settle(w *watch, armed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.pending--
	w.armed = w.armed || armed
	if !w.armed && w.pending == 0 && h.entries[w.key] == w {
		delete(h.entries, w.key)
	}
}

// fire passes an event on. One event may concern both kinds.
func (h *hub) fire(path string, ev zk.EventType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ev != zk.EventNodeChildrenChanged {
		h.fireOne(watchKey{path, watchData}, ev)
	}
	if ev == zk.EventNodeChildrenChanged || ev == zk.EventNodeDeleted {
		h.fireOne(watchKey{path, watchChildren}, ev)
	}
}

func (h *hub) fireOne(k watchKey, ev zk.EventType) {
	if w := h.entries[k]; w != nil {
		delete(h.entries, k)
		w.ev = ev
		close(w.done)
	}
}

// fireAll ends all watches. The library may still hold some of them; what it
// hears of those finds no entry, or causes a look too many.
func (h *hub) fireAll(ev zk.EventType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.entries {
		h.fireOne(k, ev)
	}
}

// reattached makes every waiter read again.
func (h *hub) reattached() { h.fireAll(evReattached) }

// end tells every waiter that the session is over.
func (h *hub) end() { h.fireAll(zk.EventNotWatching) }

// watching runs a read that sets a watch.
func watching[T any](ctx context.Context, c *Client, e *epoch, path string, kind watchKind, f func(full string, set bool) (v T, armed bool, err error)) (T, *watch, error) {
	type result struct {
		v T
		w *watch
	}
	full := c.full(path)
	r, err := read(ctx, c, e, func() (result, error) {
		w := c.hub.prepare(full, kind)
		set := c.hub.needed(w)
		v, armed, err := f(full, set)
		c.hub.settle(w, armed)
		return result{v, w}, err
	})
	return r.v, r.w, err
}

// getW reads a node and watches it for a change of its data and its deletion.
func (c *Client) getW(ctx context.Context, e *epoch, path string) ([]byte, *zk.Stat, *watch, error) {
	d, w, err := watching(ctx, c, e, path, watchData, func(full string, set bool) (nodeData, bool, error) {
		if !set {
			b, st, err := c.conn.Get(full)
			return nodeData{b, st}, false, err
		}
		b, st, _, err := c.conn.GetW(full)
		return nodeData{b, st}, err == nil, err
	})
	return d.data, d.stat, w, err
}

// existsW watches a node that may be absent: then for its creation.
func (c *Client) existsW(ctx context.Context, e *epoch, path string) (*zk.Stat, *watch, error) {
	return watching(ctx, c, e, path, watchData, func(full string, set bool) (*zk.Stat, bool, error) {
		var ok bool
		var st *zk.Stat
		var err error
		if set {
			ok, st, _, err = c.conn.ExistsW(full)
		} else {
			ok, st, err = c.conn.Exists(full)
		}
		if !ok {
			st = nil
		}
		return st, set && err == nil, err
	})
}

// childrenW lists a node and watches it for a change of the list.
func (c *Client) childrenW(ctx context.Context, e *epoch, path string) ([]string, *zk.Stat, *watch, error) {
	l, w, err := watching(ctx, c, e, path, watchChildren, func(full string, set bool) (listing, bool, error) {
		if !set {
			names, st, err := c.conn.Children(full)
			return listing{names, st}, false, err
		}
		names, st, _, err := c.conn.ChildrenW(full)
		return listing{names, st}, err == nil, err
	})
	return l.names, l.stat, w, err
}
