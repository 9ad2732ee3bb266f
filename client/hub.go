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
// and one nobody waits for any more stays and is used again. Their number is thus
// bounded by the number of living paths, not of waits.
//
// The library knows nothing of them: it is asked for plain reads, and the read of
// a path somebody is to watch is made to set the watch as it passes on the wire.
// So it has no watches to set again on another connection, which it would do for
// changes since a moment that another of its goroutines moves on. Here a new
// connection ends every watch instead, and who waits reads again.
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

// asks reports whether a read that is about to be sent is to set a watch.
func (h *hub) asks(path []byte, kind watchKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.entries[watchKey{string(path), kind}]
	return w != nil && !w.armed
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

// fireAll ends all watches. The server may still have some of them; their events
// find no entry, or cause a look too many.
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

// watching runs a read that sets a watch unless it fails.
func watching[T any](ctx context.Context, c *Client, e *epoch, path string, kind watchKind, f func(full string) (T, error)) (T, *watch, error) {
	type result struct {
		v T
		w *watch
	}
	full := c.full(path)
	r, err := read(ctx, c, e, func() (result, error) {
		w := c.hub.prepare(full, kind)
		v, err := f(full)
		c.hub.settle(w, err == nil)
		return result{v, w}, err
	})
	return r.v, r.w, err
}

// getW reads a node and watches it for a change of its data and its deletion.
func (c *Client) getW(ctx context.Context, e *epoch, path string) ([]byte, *zk.Stat, *watch, error) {
	d, w, err := watching(ctx, c, e, path, watchData, func(full string) (nodeData, error) {
		b, st, err := c.conn.Get(full)
		return nodeData{b, st}, err
	})
	return d.data, d.stat, w, err
}

// existsW watches a node that may be absent: then for its creation.
func (c *Client) existsW(ctx context.Context, e *epoch, path string) (*zk.Stat, *watch, error) {
	return watching(ctx, c, e, path, watchData, func(full string) (*zk.Stat, error) {
		ok, st, err := c.conn.Exists(full)
		if !ok {
			st = nil
		}
		return st, err
	})
}

// childrenW lists a node and watches it for a change of the list.
func (c *Client) childrenW(ctx context.Context, e *epoch, path string) ([]string, *zk.Stat, *watch, error) {
	l, w, err := watching(ctx, c, e, path, watchChildren, func(full string) (listing, error) {
		names, st, err := c.conn.Children(full)
		return listing{names, st}, err
	})
	return l.names, l.stat, w, err
}
