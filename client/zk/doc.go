// Package zk is a client of ZooKeeper and of zlockd: one session, with everything
// the protocol offers, and contexts on every call.
//
//	conn, err := zk.Dial(ctx, "h1:2181,h2:2181,h3:2181/app", zk.Options{})
//	if err != nil {
//		return err
//	}
//	defer conn.Close(ctx)
//	made, err := conn.Create(ctx, zk.Create{Path: "/jobs/job-", Mode: zk.EphemeralSequential})
//
// # Sessions
//
// A [Conn] is one session, and ends with it. It connects to the servers in random
// order, looks their names up again for every attempt, tries the next one while an
// earlier one is slow to answer, and when a connection breaks takes the session to
// another server, with its identities and its watches. If the server ends the
// session ([Conn.Over], [ErrSessionExpired]) the program decides what to do, because
// its ephemeral nodes are gone: usually it begins again with another Dial.
//
// # What becomes of a request
//
// A call waits for its answer until its context ends. Without a connection it waits
// for one, and is withdrawn if the context ends first. When a connection is lost,
// requests that were sent and not answered are repeated on the next one if they only
// read; writes are never repeated, and fail with [ErrConnectionLost]. After that, and
// when the context ends with a write under way, nobody knows whether the write
// happened: the error is [ErrUncertain]. A refusal by the server is an [*Error] and
// is compared with the codes: errors.Is(err, zk.ErrNoNode).
//
// Calls of several goroutines, and those of one [Pipe], are under way at the same
// time on the one connection, in the order in which they were made.
//
// # The order of answers and events
//
// One goroutine reads answers and events in the order in which the server sent
// them, and finishes one before it takes up the next. So:
//
//   - Calls end in the order in which they were sent, except that repeated reads
//     come after writes that failed with the connection.
//   - A watch fires before any call ends whose answer shows the change, or anything
//     later. Who reads a new state has had the event.
//   - A watch is in force as of the answer of the read that set it: there is no gap
//     between what the read showed and what the watch tells.
//   - The events of a [Subscription] are in the order of the changes.
//   - [Options.OnState] is called between answers: when it is told of Disconnected,
//     the watches and identities are not with a server; when it is told of
//     Connected, they have been sent ahead of everything else.
//
// The context of a call and a fired watch are noticed by the goroutines of the
// program whenever they are scheduled.
package zk
