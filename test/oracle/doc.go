// Package oracle runs the same random program against two servers side by side
// and compares everything a client can see: every reply, every watch event,
// every closed connection, in order.
//
// A [Program] is a list of [Step] values on a handful of named connections. A
// [Generator] makes one up as it goes, from a seed; a [Runner] sends each step
// to both servers, waits until all of its consequences have arrived, and
// compares. What servers may choose freely is compared by what it means:
//
//   - A zxid is named by the change it belongs to, so two servers agree when
//     they say "the zxid of the third change", whatever the number. ZooKeeper
//     gives failed writes a zxid of their own and zlockd does not; the header of
//     a reply is therefore compared by the last successful change it covers.
//   - Session ids are named in order of creation, passwords must come back as
//     they were given, times must belong to the zxid they stand beside.
//   - Children, own ephemerals and identities come in any order, and so do the
//     events of the nodes that go with a closing session.
//
// Everything else must be equal to the byte. Differences that are right,
// because zlockd follows ZooKeeper 3.9 where the server here is 3.8, are in one
// table, [Known], each with its reason.
//
// When the servers differ, [Shrink] searches for a short program that still
// shows it and the test writes it as a script, which then belongs in testdata
// and is replayed ever after.
package oracle
