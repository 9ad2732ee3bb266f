// Package members changes the members of a running cluster: a [Job] adds, replaces or removes one server and
// waits until the change is complete. Raft itself changes one server at a time and does not wait. A job
// continues when the leader changes, and checks that its change has taken effect.
package members
