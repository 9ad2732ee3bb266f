// Package wire is a bare ZooKeeper client for tests: it sends exactly the
// bytes it is told to and hands back every frame in the order of arrival.
//
// Real client libraries hide what tests of a server want to see: whether an
// event came before or after a reply, which zxid a header carried, whether a
// connection was closed with or without an answer. A [Conn] shows all of it
// and adds nothing: it never reconnects, never pings, never retries.
//
// Requests are built from a [Body], which can also express what no library
// would send (null strings, records cut short). For everyday steps there are
// typed methods, such as [Conn.Create], which fail with the server's
// jute.ErrCode.
//
// A [Pipe] is the same client for load: requests are appended and written
// together, replies are read without a copy.
//
// The package knows the wire format only; it works against any server.
package wire
