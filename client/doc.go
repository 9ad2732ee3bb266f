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
// The files of this package are its door: what a program calls, and what each call promises. Below are
// rooms that a program does not see. internal/take asks for locks: a call contends in one session after
// another until it has what it asks for. internal/hold keeps one grant until it is lost or given back.
// internal/session keeps one session of package [github.com/zlockd/zlockd/client/zk] after another, and
// leaves nothing behind in them. internal/inspect reads locks for the [Inspector]. What nodes mean is
// decided by package [github.com/zlockd/zlockd/client/recipe].
package client
