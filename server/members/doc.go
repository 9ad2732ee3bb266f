// Package members changes who belongs to a running cluster: a [Job] adds, replaces or removes one
// server and waits until the change is complete. Raft changes one server at a time and knows
// nothing of waiting; a job goes on while leaders change, and checks what it asked for instead of
// taking it for done.
package members
