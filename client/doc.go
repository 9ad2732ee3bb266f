// Package client gives Go programs locks, read-write locks, semaphores and elections on a zlockd or
// ZooKeeper ensemble.
//
// Begin with [Dial]. The client then makes a [Mutex], [RWMutex], [Semaphore] or [Election]; each
// gives a [Lease]. An [Inspector] has the calls for operators.
//
// A lock gives its holder a [Lease]: the right to act, until the program unlocks it or the client
// loses it. A lease can be lost at any time. A call that waits takes a context and returns a lease
// or an error, never both. When a lease is lost, its context ([Lease.Context]) ends before another
// client can get the lock, unless that client took the lock by force: by removing the node or
// ending the session.
//
//	c, err := client.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181") // ctx limits how long it tries
//	…
//	lease, err := c.Mutex("/jobs/nightly").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(ctx)
//	return work(lease.Context(), lease.Token())
//
// # Guarantees
//
// In the server's history two conflicting holds never overlap, and the tokens of successive
// exclusive holds grow. No client can stop a process that pauses after it last looked at its lock.
// So send [Lease.Token] with every write and let the resource refuse older tokens (package
// [github.com/zlockd/zlockd/client/fence]), or write to znodes with [Lease.Txn]. docs/locks.md says
// which guarantee depends on what.
//
// # What the package does not do
//
// The client does not hide the loss of a session: only the program knows what to clean up. A holder
// never silently gets its lock again; a waiter has nothing to lose and queues again by itself.
// There is no adapter to sync.Locker, because a lock that can be lost must not look like one that
// cannot.
//
// # How it is built
//
// Below is a keeper (keeper.go), which knows nothing of locks: it keeps one session of package
// [github.com/zlockd/zlockd/client/zk] after another. session.go sends the heartbeats, epoch.go keeps the
// deadline of one session and ends waits, calls.go repeats reads and changes until their outcome is known,
// create.go makes nodes that it can recognise, and reaper.go removes those that are abandoned.
//
// Above it, a call is an attempt (attempt.go). It runs in one session after another until it gets a hold
// (hold.go): the nodes that stand for one lease or for several. The hold ends with a loss or a release
// (holdend.go). Every recipe with a queue uses one contender (contender.go), which finds the node to wait
// for (recipe/place.go), waits while it watches its own node (place.go), and leaves cleanly. The file of a
// recipe holds only what differs.
package client
