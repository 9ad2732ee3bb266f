// Package members changes the members of a running cluster. A [change.Job] adds, replaces or removes one
// server, and waits until that is complete. Raft alone makes one change at a time, and does not wait. A job
// goes on when the leader changes, and checks that its changes have taken effect.
package members
