// Package recipe knows how nodes represent a lock: their names, the records in their data, which
// contenders hold, which wait, and for which others.
//
// Package client decides its own turn with it. The lock view and the command zlock describe every
// lock with it, so all of them agree on the holders.
//
// The package is pure. It has no clock, no goroutine and no I/O: its callers read the nodes, from a
// session or from the tree, and pass them in.
//
// Package client is promised to other programs, and so are the types that its calls take and return.
// These types, with their fields and methods, are promised with it: Cycle, Edge, Entry, Graph, Kind,
// Layout, Lock, Maker, Mode, Owner, Party, Policy, Queue, Revocation, Session.
//
// All other names may change with each release.
package recipe
