// Package proc runs real zlockd processes on loopback with the faults of processes: kill -9, stop and
// continue, restart, a disk that fills. Servers join, leave and come back. Data move in and out of a running
// server, and from a ZooKeeper and back (build tag stock). Many thousands of sessions lose their leader.
//
// The flag -idle N sets the number of idle sessions. Their clients are processes of their own, because one
// process has too few descriptors. When the leader of three servers has died, each survivor has N/2 of these
// sessions. A server uses four fifths of its descriptors (ulimit -n) for connections.
package proc
