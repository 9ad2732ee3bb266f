// Package sim runs whole clusters in one process and in virtual time: real
// servers with real raft, on a network in memory that can be cut and on disks
// in memory that survive a crash. Faults follow a seed.
package sim
