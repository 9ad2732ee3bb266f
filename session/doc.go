// Package session knows the sessions and when they expire.
//
// A [Table] is the replicated part: every server holds the same one, changed
// only by applying the log. It gives ids, checks passwords and counts attach
// generations. An [Expiry] is the leader's own view of time: when each session
// was last heard from and which have been silent for too long. It is never
// replicated; a new leader begins with full timeouts for all.
//
// Nothing here asks a clock, starts a goroutine, takes a lock or draws a random
// number: times, passwords and the id prefix are handed in. Two rules hold
// throughout:
//
//   - an id is given once and never again, whatever ended the session;
//   - a session is never due before its whole timeout has passed since it was
//     last heard from.
package session
