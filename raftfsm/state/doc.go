// Package state is the pure replicated state: what it holds, how it changes,
// and how its log entries and snapshots are written down. It has no raft, no
// clock, no lock, no goroutine, and no I/O beyond the io.Reader and io.Writer
// of a snapshot.
//
// A [State] holds the znode tree, the sessions, the request streams and the members. Its Apply turns one log
// entry into outcomes and reports them to a [Sink]. It asks no clock, no configuration and no connection, so
// every server that applies the same entries holds the same bytes. Only Apply decides whether a request
// succeeds: an entry carries requests in the clients' own bytes.
//
// A State has no lock. At any time, its caller may let one goroutine change it (Apply, StartSnapshot,
// Snapshot.Close) or any number of goroutines read it.
package state
