// Package proc runs real zlockd processes on loopback with the faults of processes: kill -9, stop and
// continue, restart, a disk that fills. Servers join, leave and come back. Data move in and out of a running
// server, and from a ZooKeeper and back (build tag stock). Many thousands of sessions lose their leader.
//
// Each server begins with ZLOCKD_MANY sessions, for example 10000. The clients are processes of their own, so
// that descriptors suffice. A server uses four fifths of its descriptors for connections, so with 20,000
// (ulimit -n) a third more than 10,000 sessions must fit there after the leader's end.
package proc
