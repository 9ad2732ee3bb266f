// Package raftfsm is the replicated state of a lock server and the raft that
// replicates it.
//
// The core is pure: a [State] holds the znode tree, the sessions and the
// request streams, and its Apply turns one log entry into outcomes. It asks no
// clock, no configuration and no connection, so every server that applies the
// same entries holds the same bytes. Nothing is decided before the log: an
// entry carries requests in the clients' own bytes, and Apply alone says
// whether they succeed.
//
// Around it stands a [Node], this process's part in raft. It proposes requests
// in batches, one entry in flight and one being filled; forwards them to the
// leader when it does not lead; and tells a [Waiter] the outcome once its own
// state has applied the request. Requests travel in one numbered stream per
// server and Apply skips what it has seen, so a stream is resent to a new
// leader without doubling anything: clients of a surviving server do not notice
// that a leader died.
//
// Three rules hold everywhere:
//
//   - Only Apply changes the state, under the write side of one lock. Events
//     and replies are handed to the [Observer] and to waiters under that lock.
//   - A storage error ends the process. What is on disk after the restart is
//     the truth.
//   - No outcome is invented. What cannot be known closes the connection.
package raftfsm
