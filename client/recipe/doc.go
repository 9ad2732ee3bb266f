// Package recipe defines how a lock is written down: the names and the data of its nodes, and the form in
// which its holders, its waiters and the graph of waits are shown.
//
// Package turns below it decides which contenders hold and which wait, and package waits builds the graph.
// Package client, the lock view and the command zlock use these three packages, so all of them agree on the
// holders.
//
// These packages are pure. They have no clock, no goroutine and no I/O: callers read the nodes, from a
// session or from the tree, and pass them in.
//
// The API of package client is promised to other programs: it is stable. The types of this package in its
// calls, with their fields and methods, are promised with it: Cycle, Edge, Entry, Graph, Kind, Layout, Lock,
// Maker, Mode, Owner, Party, Policy, Queue, Revocation, Session.
//
// All other names may change with each release.
package recipe
