// Package entries is the coding of log entries: how requests are written down in raft's log, and read again.
// The package knows the form of requests and entries, but no state: package state defines what an entry
// changes. Servers of two releases share one log, so an encoding never changes, and a new encoding gets a
// kind of its own.
//
// The file format.go defines the format with its kinds and bounds. The files identities.go and request.go
// have the coding of one request, and entry.go that of blocks and whole entries. The code in named.go writes
// long identities only once for each entry.
package entries
