// Package change has the words for changes of a cluster's members, and decides which changes are safe. It
// asks no server: its callers pass the facts about the servers.
package change

import "github.com/zlockd/zlockd/raftfsm/status"

// Safe returns an error if the voters after a change could not commit entries. A majority of these voters
// must follow now and have the log. A server that has lost its log does not count, even if it runs. It cannot
// confirm an entry before it has received the log, and it receives no log while its former directory counts
// as a voter.
func Safe(voters []uint32, follow map[uint32]bool) error {
	if len(voters) == 0 {
		return status.Errorf(status.Unsafe, "the change would leave no server with a vote")
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
		"which is not a majority: the cluster would stop. First start the servers that are down, and replace "+
		"those that have lost their data", n, len(voters))
}
