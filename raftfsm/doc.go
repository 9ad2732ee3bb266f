// Package raftfsm is this process's part in its cluster: forming one, following a leader, and
// leading. Package state holds the replicated state; package elect decides when a
// server stands for election.
//
// A [Node] proposes requests in batches, one entry in flight and one being filled;
// forwards them to the leader when it does not lead; and tells a [state.Waiter] the
// outcome once its own state has applied the request. Requests travel in one numbered stream per
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
//   - No outcome is invented. An unknown outcome closes the connection.
//
// Parts that work alone have packages of their own: form, restore and upkeep, apply, stream, leading,
// followers, serving, consensus, elect, state, disk and peer. The files here join them, each with one duty:
//
//   - node.go and start.go start and stop a server's part, with the settings in options.go; host.go answers
//     the peer port; known.go reports this server's own status, and detects that its directory is an old
//     copy.
//   - addresses.go finds members that have moved, and asks the leader wherever it is.
//   - follow.go sends the stream to the leader, where package leading takes it in; leaderwatch.go notes who
//     leads, and since when.
//   - stream.go proposes requests, member.go changes of the members; probe.go finds whether a server could be
//     one. tickets.go is what only tickets need.
//   - progress.go tells what is known.
package raftfsm
