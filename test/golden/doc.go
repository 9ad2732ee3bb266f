// Package golden replays byte-exact exchanges, recorded from a real ZooKeeper, against any server.
//
// A [Vector] is a list of steps on named connections: bytes to send, the frame that must come
// back, a pause in which nothing may come. The recording marks values that differ from server
// to server and from run to run (ids, passwords, zxids, times). The replay compares these by
// meaning instead of by bytes: the same symbol stands for the same value, a later zxid is
// larger, a read's zxid never goes back. testdata/README.md has the format and all rules.
//
// Where zlockd deliberately answers otherwise than the recorded server, a [Deviation] says
// what it answers instead, and why. An unnecessary deviation fails the replay: the table
// cannot hide a regression towards a server that differs less.
//
// The tests also replay recordings against the real server, to prove the recordings.
//
// The package also compares other texts with the code: [Table] the tables of the documentation, and [Manual]
// the manual pages. [Ours] and [Public] return the queries of dashboards and alert rules that read metrics.
package golden
