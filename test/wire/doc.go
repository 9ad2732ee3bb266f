// Package wire is a bare ZooKeeper client for tests: it sends exactly the bytes that the test
// gives it and returns every frame in the order of arrival.
//
// Real client libraries hide what tests of a server need to see: whether an event came before or after a
// reply, which zxid a header carried, whether the server closed a connection with or without an answer. A
// [Conn] shows all of it and adds nothing: it never reconnects, never pings, never retries.
//
// Tests build requests from a [Body], which can also express what no library sends (null
// strings, records cut short). For everyday steps there are typed methods, such as
// [Conn.Create], which fail with the server's jute.ErrCode.
//
// A [Pipe] is the same client for load: it writes requests together, and reads replies without a copy.
//
// The package knows the wire format only; it works against any server.
package wire
