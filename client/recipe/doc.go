// Package recipe knows how a lock is written down as nodes: their names, the
// records in their data, who holds, who waits, and for whom.
//
// Package client decides its own turn by it, and the lock view and the command
// zlock describe every lock by it, so that all of them agree on who holds.
//
// The package is pure. It has no clock, no goroutine and no I/O: its callers read
// the nodes, from a session or from the tree, and hand over what they have read.
package recipe
