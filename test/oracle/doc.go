// Package oracle runs the same random program against two servers side by side and compares everything that
// a client can see: every reply, every watch event, every closed connection, in order.
//
// A [Program] is a list of [Step] values on a handful of named connections. A [Generator] creates it step
// by step from a seed. A [Runner] sends each step to both servers, waits until all of its consequences have
// arrived, and compares them. Where servers have a choice, the runner compares the meaning:
//
//   - A zxid is named by the change it belongs to, so two servers agree when
//     they say "the zxid of the third change", whatever the number. ZooKeeper
//     gives failed writes a zxid of their own and zlockd does not; the header of
//     a reply is therefore compared by the last successful change it covers.
//   - Session ids are named in order of creation, passwords must come back as
//     they were given, and each zxid must always come with the same time.
//   - Children may come in any order, and so may the events of the nodes that go
//     with a closing session.
//
// Everything else must be equal to the byte. The table [Known] lists the differences that are
// right, because zlockd follows ZooKeeper 3.9 and the reference is 3.8, each with its reason.
//
// When the servers differ, [Shrink] searches for a short program that still shows the difference. The test
// writes it as a script, which then belongs in testdata and is always replayed.
package oracle
