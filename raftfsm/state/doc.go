// Package state is the pure replicated state: its content, its changes, and the encoding of snapshots.
// Package entries has the encoding of log entries. Package state has no raft, no clock, no lock, no
// goroutine, and no I/O except the io.Reader and io.Writer of a snapshot.
package state
