// Package zk is a client of ZooKeeper and of zlockd: one session, with all operations of the protocol, and a
// context for every call.
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
// A [Conn] is one session, and ends with it. It connects to the servers in random order and looks their names
// up again for every attempt. While one server is slow to answer, it tries the next. When a connection
// breaks, the Conn takes the session to another server, with its identities and its watches. If the server
// ends the session ([Conn.Over], [ErrSessionExpired]), its ephemeral nodes are gone, and the program decides
// what to do: usually it begins again with another Dial.
//
// # The outcome of a request
//
// A call waits for its answer until its context ends. Without a connection it waits for one; if the context
// ends first, the Conn withdraws the request. When a connection is lost, the Conn repeats unanswered reads on
// the next connection; it also repeats reads that failed between two servers. It never repeats writes: they
// fail with [ErrConnectionLost], and their outcome is unknown. The outcome is also unknown if the context
// ends while a write is under way. Both errors are [ErrUncertain]. A refusal by the server is an [*Error];
// compare it with the codes: errors.Is(err, zk.ErrNoNode).
//
// The calls of several goroutines, and the calls of one [Pipe], are under way at the same time on one
// connection, in the order in which they were made.
//
// # The order of answers and events
//
// One goroutine reads answers and events in the order in which the server sent them. It finishes each of them
// before it reads the next. So:
//
//   - Calls end in the order in which they were sent, except that repeated reads come after writes that
//     failed with the connection.
//   - A watch fires before the end of any call whose answer shows the change or a later state. A program that
//     reads a new state has already had the event.
//   - A watch counts from the answer of the read that set it: no change is lost between the state that the
//     read showed and the changes that the watch reports.
//   - The events of a [Subscription] are in the order of the changes.
//   - The Conn calls [Options.OnState] between answers. At Disconnected, no server has the watches and
//     identities. At Connected, the Conn has sent them before any other request.
//
// These rules do not say when the program's own goroutines run: they may notice an ended context or a fired
// watch later.
package zk
