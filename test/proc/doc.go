// Package proc runs real zlockd processes on loopback and does to them what
// happens to processes: kill -9, stop and continue, restart, a disk that fills.
// Servers join, leave and come back; data move in and out, from a running server,
// and from a ZooKeeper and back into one (build tag stock); many thousands of
// sessions lose their leader.
//
// ZLOCKD_MANY=10000 is how many sessions each server begins with; the clients
// are processes of their own, so that descriptors suffice. A server takes
// connections for four fifths of its descriptors, so with 20,000 (ulimit -n) a
// third more than 10,000 of them must fit there after the leader's end.
package proc
