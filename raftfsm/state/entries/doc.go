// Package entries is the coding of log entries: how requests are written down in raft's log, and read again.
// It knows the form of a request and of an entry, and no state: what an entry changes is in package state.
// Servers of two releases share one log, so an encoding never changes; a new one gets a kind of its own.
//
// From the ground up: format.go has the format, its kinds and bounds; identities.go and request.go one
// request; entry.go blocks and whole entries; named.go names long identities once.
package entries
