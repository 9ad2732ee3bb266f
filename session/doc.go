// Package session holds the sessions, and computes when they expire.
//
// A [Table] is the replicated part: every server has the same table, and only the log changes it. It assigns
// ids, checks passwords and counts attach generations. An [Expiry] is the leader's own record of time: when
// each session was last heard from, and which sessions have been silent for too long. It is never replicated;
// a new leader begins with the full timeout for every session.
//
// The package asks no clock, starts no goroutine, takes no lock and draws no random number: the caller passes
// times, passwords and the prefix of ids. Two rules always hold:
//
//   - the table never assigns an id twice, whatever ended the session;
//   - a session is never due before its whole timeout has passed since it was last heard from.
package session
