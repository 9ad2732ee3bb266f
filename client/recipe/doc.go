// Package recipe defines how nodes represent a lock: their names and the records in their data. It decides
// which contenders hold, which wait, and for which others.
//
// Package client decides its own turn with it. The lock view and the command zlock describe every
// lock with it, so all of them agree on the holders.
//
// The package is pure. It has no clock, no goroutine and no I/O: its callers read the nodes, from a
// session or from the tree, and pass them in.
//
// The API of package client is stable for other programs, and so are the types in its calls. These types of
// this package, with their fields and methods, are promised with it: Cycle, Edge, Entry, Graph, Kind, Layout,
// Lock, Maker, Mode, Owner, Party, Policy, Queue, Revocation, Session.
//
// All other names may change with each release.
package recipe
