// Package disk is what a server keeps on its disk: the data directory and its
// identity, the stores of raft (log, terms and votes, snapshot files), and the
// watchdog that ends the process when one of them fails or hangs. It knows
// nothing of other servers, and of what is stored only how to check it.
//
// A storage error ends the process. raft would step down and carry on with a
// wrong idea of its last entry; what is on disk after the restart is the truth.
package disk
