// Package raftfsm is this process's part in its cluster: forming one, following
// a leader, leading with its duties, and standing for election. What is
// replicated is in package state.
//
// A [Node] proposes requests in batches, one entry in flight and one being filled; forwards them to the
// leader when it does not lead; and tells a [state.Waiter] the outcome once its own
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
