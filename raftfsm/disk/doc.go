// Package disk keeps a server's data on its disk: the data directory and its identity, the stores
// of raft (log, terms and votes, snapshot files), and the watchdog that ends the process when one
// of them fails or hangs. It knows nothing of other servers, and of the stored data only how to
// check them.
//
// A storage error ends the process. raft would step down and carry on with a wrong idea of its
// last entry; after the restart the disk holds the truth.
package disk
