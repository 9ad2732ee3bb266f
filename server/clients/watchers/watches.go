// Package watchers keeps the watches of a server's clients. It moves the events of changes into the outboxes
// of the clients that watch the nodes and may read them.
package watchers

import (
	"slices"
	"sync"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/tree/watches"
)

// Table holds the watches of a server's connections. The order of locks is: the state lock, the lock of the
// table, the lock of an outbox.
type Table struct {
	bounds   Bounds
	shares   *budget.Shares
	outboxes *outbox.Shared
	of       func(host string) []*Watcher // the connections from one address

	mu    sync.Mutex
	table *watches.Table[*Watcher]

	telling
	hear  func(*Watcher)
	above func(path uint32)
}

// Init makes the table of a server.
func (t *Table) Init(b Bounds, shares *budget.Shares, outboxes *outbox.Shared,
	of func(host string) []*Watcher) {
	t.bounds, t.shares, t.outboxes, t.of = b, shares, outboxes, of
	t.table = watches.New[*Watcher]()
	t.hear, t.above = t.hearOne, t.aboveOne
	t.asked, t.deepOf = make(map[question]bool), make(map[uint32]int)
}

// Add registers a watch. If that would exceed a bound, it ends the connection and returns false. To repeat a
// watch that the connection has already needs no room.
func (t *Table) Add(c *Watcher, path string, kind watches.Kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dropped {
		return false // the connection has ended, and this answer to a parked read comes late
	}
	if !t.room(c, len(path)) && !t.table.Has(c, path, typeOf[kind]) {
		c.Out.Kill(ends.Watches)
		t.outboxes.Kick()
		return false
	}
	t.table.Add(c, path, kind)
	return true
}

// typeOf has the watcher type in requests for each kind of watch.
var typeOf = [...]int32{watches.Data: jute.WatcherData, watches.Child: jute.WatcherChildren,
	watches.Persistent: jute.WatcherPersistent, watches.Recursive: jute.WatcherPersistentRecursive}

const (
	// smallWatches is how many bytes of watches any connection may have, even when the watches of all
	// connections have reached their bound: one greedy connection does not keep out modest ones.
	smallWatches = 64 << 10
	// watchStep says when to count all watches of an address again: each time that the watches of one of its
	// connections have grown by this many bytes.
	watchStep = 64 << 10
)

// room reports whether c may have one more watch whose path has `path` bytes.
func (t *Table) room(c *Watcher, path int) bool {
	o := &t.bounds
	count, before := t.table.Of(c)
	bytes := before + path
	switch {
	case count >= o.PerConn || t.table.Count() >= o.All || bytes > o.BytesPerConn:
		return false
	case bytes <= smallWatches:
		return true
	case t.table.Bytes()+int64(path) > int64(o.Bytes):
		return false
	case t.shares.Bound() && before/watchStep != bytes/watchStep:
		c.From.Account.SetWatches(t.bytesOf(c.From.Host))
		return t.shares.Room(&c.From.Account, path)
	}
	return true
}

// Recount counts the memory of all watches of one address again.
func (t *Table) Recount(from *Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from.Account.SetWatches(t.bytesOf(from.Host))
}

// bytesOf returns the memory of all watches of one address.
func (t *Table) bytesOf(host string) (sum int) {
	for _, c := range t.of(host) {
		_, bytes := t.table.Of(c)
		sum += bytes
	}
	return sum
}

// Drop removes a connection's watches, a few at a time, because the goroutine that applies the log may wait
// for the lock.
func (t *Table) Drop(c *Watcher) {
	t.mu.Lock()
	c.dropped = true
	_, bytes := t.table.Of(c)
	more := t.table.Drop(c)
	t.mu.Unlock()
	if bytes >= watchStep {
		t.Recount(c.From)
	}
	for more {
		t.mu.Lock()
		more = t.table.Sweep(sweepStep)
		t.mu.Unlock()
	}
}

// sweepStep is how many watches Drop removes under one hold of the lock.
const sweepStep = 4096

// Reset removes every watch.
func (t *Table) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table = watches.New[*Watcher]()
}

// Find reports whether c has a watch of this type at this path. If op is removeWatches, Find also removes the
// watch.
func (t *Table) Find(c *Watcher, op jute.OpCode, path string, watcherType int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if op == jute.OpRemoveWatches {
		return t.table.Remove(c, path, watcherType)
	}
	return t.table.Has(c, path, watcherType)
}

// Has reports whether a connection watches exactly this path.
func (t *Table) Has(c *Watcher, path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table.Has(c, path, jute.WatcherAny)
}

// At calls f for the connections that watch exactly this path, but for at most `most` of them.
func (t *Table) At(path string, most int, f func(*Watcher)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.WatchersAt(path, most, f)
}

// Of returns how many watches a connection has.
func (t *Table) Of(c *Watcher) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, _ := t.table.Of(c)
	return count
}

// Figures says how much is watched.
type Figures struct {
	Conns, Paths, Watches int   // counts of data watches and persistent watches
	All                   int   // watches of all kinds
	Bytes                 int64 // bytes of memory
}

// Figures counts what is watched.
func (t *Table) Figures() (f Figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.Conns, f.Paths, f.Watches = t.table.Summary()
	f.All, f.Bytes = t.table.Count(), t.table.Bytes()
	return f
}

// Scan calls f for about `step` pairs of a path and a connection that has a data or persistent watch there.
// It continues at `from`, which the last call has returned, and returns 0 after the last pair.
func (t *Table) Scan(from uint32, step int, f func(path string, c *Watcher)) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table.Scan(from, step, f)
}

// Largest returns the largest memory of one connection's watches. It holds the lock of the watches for a few
// connections at a time, because the goroutine that applies the log may wait for that lock.
func (t *Table) Largest(list []*Watcher) (most int) {
	for part := range slices.Chunk(list, sweepStep) {
		t.mu.Lock()
		for _, c := range part {
			_, bytes := t.table.Of(c)
			most = max(most, bytes)
		}
		t.mu.Unlock()
	}
	return most
}
