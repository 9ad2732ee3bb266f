// Package raftfsm runs this process's part in its cluster: it forms the cluster, follows a leader, and
// leads. Package state holds the replicated state; package elect decides when a server stands for election.
//
// A [Node] proposes requests in batches: while one entry is in flight, it fills the next one. A Node that
// does not lead forwards its requests to the leader. It tells a [state.Waiter] the outcome of a request
// after its own state has applied the request. Requests travel in one numbered stream per server, and Apply
// skips requests that it has seen. So a server can send its stream again to a new leader, and no request
// takes effect twice: clients of a surviving server do not notice that a leader died.
//
// Three rules hold everywhere:
//
//   - Only Apply changes the state, under the write side of one lock. Events and replies are handed to the
//     [Observer] and to waiters under that lock.
//   - A storage error ends the process. What is on disk after the restart is the truth.
//   - No outcome is invented. If the outcome is unknown, the client's connection is closed.
//
// Parts that do not need a Node have packages of their own: form, restore and upkeep, apply, stream,
// leading, followers, serving, consensus, elect, state, disk and peer. The files here join these parts, each
// with one duty:
//
//   - node.go and start.go start and stop a server's part in the cluster, with the settings in options.go;
//     host.go answers requests at the peer port, and reports this server's own status; admit.go decides which
//     servers may connect, and detects that a directory is an old copy.
//   - addresses.go finds members that have moved, and asks the leader wherever it is.
//   - follow.go sends the stream to the leader, where package leading receives it; leaderwatch.go notes
//     which server leads, and measures the time without a leader.
//   - stream.go proposes requests; member.go changes the members; probe.go checks whether a server could be a
//     member; tickets.go has the functions that only tickets need.
//   - progress.go reports the status of this server and of the members.
package raftfsm
