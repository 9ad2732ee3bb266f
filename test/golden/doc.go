// Package golden replays byte-exact exchanges recorded from a real ZooKeeper
// against any server.
//
// A [Vector] is a list of steps on named connections: bytes to send, the frame
// that must come back, a pause in which nothing may come. What differs from
// server to server and from run to run (ids, passwords, zxids, times) is
// marked in the recording and compared by what it means instead of by its
// bytes: the same symbol stands for the same value, a later zxid is larger, a
// read's zxid never goes back. testdata/README.md has the format and all
// rules.
//
// Where zlockd deliberately answers otherwise than the recorded server, a
// [Deviation] says what it answers instead, and why. A deviation that turns
// out not to be needed fails the replay: the table cannot hide a regression
// towards a server that differs less.
//
// Recordings prove themselves first: the tests replay them against the real
// server too.
package golden
