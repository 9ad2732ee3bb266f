// Package apply is the replicated state of one server behind its lock: it applies the log's entries, tells
// the observer and the waiters of their outcomes, and writes and takes in snapshots and backups. Package
// state is the state itself.
//
// Only the goroutine on which raft calls Apply and Restore changes the state, under the write side of the
// state lock. Events and outcomes are handed on under that lock, events first, so that no client sees a
// change before its event. Snapshots and backups read under the read side, a few nodes at a time.
//
// fsm.go is the state and what belongs to it; entries.go applies entries; looks.go reads and waits;
// snapshot.go writes the state as a whole and restore.go takes one in; deadlines.go has the sessions'
// deadlines while this server leads; measure.go measures.
package apply
