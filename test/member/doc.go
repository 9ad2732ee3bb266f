// Package member tests changes of who belongs to a cluster, on real processes
// and through every door there is: the command zlock, the text of
// docs/operations.md, and the operation reconfig of ZooKeeper's clients.
package member
