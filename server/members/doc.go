// Package members changes the members of a running cluster: a [Job] adds, replaces or removes one server and
// waits until the change is complete. Raft changes one server at a time and does not wait. A job continues
// when the leader changes, and checks that the change has really happened.
package members
