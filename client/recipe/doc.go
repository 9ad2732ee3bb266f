// Package recipe knows how nodes represent a lock: their names, the records in their data, which
// contenders hold, which wait, and for which others.
//
// Package client decides its own turn with it. The lock view and the command zlock describe every
// lock with it, so all of them agree on the holders.
//
// The package is pure. It has no clock, no goroutine and no I/O: its callers read the nodes, from a
// session or from the tree, and pass them in.
package recipe
