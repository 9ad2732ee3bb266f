// Package abuse sets hostile and clumsy clients on real servers under limits of
// memory, disk and descriptors, while two innocent clients hand a lock to each
// other. It holds the servers to what docs/limits.md promises: memory, log and
// descriptors stay within bounds, no server ends, and the lock goes on.
//
// TestRandomAttacks draws attacks from a grammar of operations, depths, ACLs, watches
// and connections, each on a server of its own without a log, and measures what the
// state lock is held for.
//
// Run `make abuse`; `go test ./test/abuse` is the short form.
package abuse
