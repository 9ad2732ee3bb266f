// Package cluster starts server processes for tests and benchmarks: zlockd built from this module, or the
// ZooKeeper of Debian's package `zookeeper`, as one server or as an ensemble. Both have the same limits and
// their own loopback ports, so a program can talk to either.
//
// An [Ensemble] owns its processes and its directory. Tests can kill servers and start them
// again on the same ports and data.
package cluster
