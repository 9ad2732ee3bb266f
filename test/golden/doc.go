// Package golden replays byte-exact exchanges, recorded from a real ZooKeeper, against any server.
//
// A [Vector] is a list of steps on named connections: bytes to send, the frame that must come
// back, a pause in which nothing may come. The recording marks values that differ from server
// to server and from run to run (ids, passwords, zxids, times). The replay compares these by
// meaning instead of by bytes: the same symbol stands for the same value, a later zxid is
// larger, a read's zxid never goes back. testdata/README.md has the format and all rules.
//
// Where zlockd deliberately answers differently from the recorded server, a [Deviation] says what zlockd
// answers, and why. A deviation that is not needed fails the replay, so the table has no entry for an answer
// that is the same.
//
// The tests also replay recordings against the real server, to prove the recordings.
//
// The package has helpers for other tests, too. [Table] compares a table of the documentation with the code,
// and [Manual] checks a manual page. [Ours] and [Public] return the queries of dashboards and alert rules
// that read metrics.
package golden
