// Package session holds the sessions, and computes when they expire.
//
// A [Table] is the replicated part: every server holds the same one, changed only by applying the log. It
// assigns ids, checks passwords and counts attach generations. An [Expiry] is the leader's own view of time:
// when each session was last heard from and which have been silent for too long. It is never replicated; a
// new leader begins with full timeouts for all.
//
// Nothing here asks a clock, starts a goroutine, takes a lock or draws a random number: the caller passes
// times, passwords and the id prefix. Two rules always hold:
//
//   - the table never assigns an id twice, whatever ended the session;
//   - a session is never due before its whole timeout has passed since it was
//     last heard from.
package session
