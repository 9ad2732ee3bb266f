// Package raftfsm is this process's part in its cluster: forming one, following a leader, and
// leading with its duties. Package state holds the replicated state; package elect decides when a
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
// Files by duty:
//
//   - node.go starts and stops a server's part, options.go says how; host.go is what
//     the peer port asks of it, and notices that a directory is an old copy; consensus.go is
//     raft with what this package adds, such as the newest log entries in memory.
//   - package form finds the cluster at the start; addresses.go finds members that have moved.
//   - stream.go numbers requests, lanes.go lets sessions take turns before that;
//     follow.go sends the stream to the leader, and link.go is the leader's end.
//   - lead.go runs a term and proposes entries, gather.go lets requests wait for those that are
//     about to come; duties.go is what else a leader does; commits.go tells followers of
//     commits; publish.go tells clients of the members; member.go changes them, and gives
//     leadership away.
//   - fsm.go applies the log; snapshot.go and package restore are about the state as a whole.
//   - serving.go decides whether clients are served; progress.go and measure.go tell what is
//     known.
package raftfsm
