// Package change decides which changes of a cluster's members are safe. It is pure: what it needs to know of
// the servers, its callers find out.
package change

import "github.com/zlockd/zlockd/raftfsm/status"

// Safe returns an error if the voters that a change leaves are no longer a cluster: a majority of them must
// follow now and have the log. A server that runs and has lost its log is no help, because it can confirm no
// entry before it was sent the log, and while it still has the place of a voter it is sent nothing.
func Safe(voters []uint32, follow map[uint32]bool) error {
	if len(voters) == 0 {
		return status.Errorf(status.Unsafe, "it would leave no server that votes")
	}
	n := 0
	for _, id := range voters {
		if follow[id] {
			n++
		}
	}
	if n > len(voters)/2 {
		return nil
	}
	return status.Errorf(status.Unsafe, "after this change only %d of the %d voters follow and have the log, "+
		"which is no majority: the cluster would stop. First start the servers that are down, and replace those "+
		"that have lost their data", n, len(voters))
}
