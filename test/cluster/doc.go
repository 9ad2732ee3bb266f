// Package cluster starts server processes for tests and benchmarks: zlockd
// built from this module, and the ZooKeeper of Debian's package `zookeeper`
// beside it, one server or an ensemble. Both sides come up with the same
// limits and on loopback ports of their own, so whatever talks to one can talk
// to the other.
//
// An [Ensemble] owns its processes and its directory. Servers can be killed
// and started again on the same ports and data.
package cluster
