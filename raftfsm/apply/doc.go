// Package apply is the replicated state of one server behind its lock. It applies the entries of the log,
// reports their outcomes to the observer and the waiters, and writes and reads snapshots and backups. Package
// state is the state itself.
//
// Only the goroutine on which raft calls Apply and Restore changes the state, under the write side of the
// state lock. That goroutine reports events and outcomes under the same lock, events first, so that no client
// sees a change before its event. Snapshots and backups read the state under the read side, a few nodes at a
// time.
//
// fsm.go has the state and the fields beside it; entries.go applies entries; looks.go reads and waits;
// snapshot.go writes the whole state and restore.go replaces it; deadlines.go has the sessions' deadlines
// while this server leads; measure.go measures.
package apply
