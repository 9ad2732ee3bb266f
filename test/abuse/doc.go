// Package abuse sets hostile and clumsy clients on real servers under limits of memory, disk
// and descriptors, while two innocent clients pass a lock to each other. It holds the servers
// to the promises of docs/limits.md: memory, log and descriptors stay within bounds, no server
// ends, and the lock goes on.
//
// TestRandomAttacks draws attacks from a grammar of operations, depths, ACLs, watches and
// connections, each on its own server without a log, and measures how long the server holds
// the state lock.
//
// Run `make abuse`; `go test ./test/abuse` is the short form.
package abuse
