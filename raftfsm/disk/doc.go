// Package disk keeps a server's data on its disk: the data directory and its identity, the stores of raft
// (log, terms and votes, snapshot files), and the watchdog that ends the process when one of them fails or
// hangs. It knows nothing of other servers. It can check the stored data, but does not interpret the data.
//
// A storage error ends the process. If the process continued, raft would step down and have a wrong idea of
// its last entry. After a restart the server reads the true state from the disk.
package disk
