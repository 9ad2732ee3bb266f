// Package move tests the ways of data in and out: from a real ZooKeeper and back
// into one, out of a running server and into a new one. It needs Java and the
// zookeeper package, and runs with the build tag stock.
package move
