// Package abuse sets hostile and clumsy clients on real servers under limits of memory, disk
// and descriptors, while two innocent clients pass a lock to each other. It holds the servers
// to the promises of docs/limits.md: memory, log and descriptors stay within bounds, no server
// ends, and the lock goes on.
//
// TestRandomAttacks draws attacks from a grammar of operations, depths, ACLs, watches and
// connections, each on its own server without a log, and measures how long the server holds
// the state lock:
//
//   - the processor time of each hold, without the time in which the thread that holds the lock
//     waits for a processor. Each entry has one request, so a hold is the cost of one request
//     with its events;
//   - the sum of the holds over at least a second, without those for the innocent client.
//     An address may use up its share of a tenth of a second at once (33 ms), and finish the
//     request that it has begun (20 ms). So the bound is a third of the time plus 60 ms;
//   - the steps of each request, and the memory of the process with the attackers in it;
//   - the slowest lock of the innocent client, from its request to its answer.
//
// Steps and memory must hold in the first run. Other work on the machine makes page faults, misses
// of the cache and waits longer, so an attack fails by its times only if three runs of the same
// seed are beyond a bound: if the server itself is too slow, it is too slow each time.
//
// TestEndsOfSessions lets sessions with thousands of nodes end again and again, before watchers at their own
// address and while operators' views are read. The end of a session has no budget: all its nodes go under one
// zxid. So its hold of the state lock grows with the number of its nodes. With the sizes of this test, it must
// stay within the bound of a request.
//
// TestTicketAbuse sets hostile callers on the port for tickets, with and without tokens. An innocent
// caller's tickets and draws take at most twice as long, and nothing that the servers write or show
// contains a secret or a token.
//
// Run `make abuse`; `go test ./test/abuse` is the short form.
package abuse
