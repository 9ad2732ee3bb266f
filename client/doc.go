// Package client gives Go programs locks, read-write locks, semaphores and elections on a zlockd or ZooKeeper
// ensemble.
//
// Begin with [Dial]. The client then makes a [Mutex], [RWMutex], [Semaphore] or [Election]; each gives a
// [Lease]. An [Inspector] has the calls for operators.
//
// A lock gives its holder a [Lease]: the right to act until the program unlocks the lease or the client loses
// it. A lease can be lost at any time. A call that waits takes a context and returns a lease or an error,
// never both. When a lease is lost, its context ([Lease.Context]) ends before another client can get the
// lock, unless that client took the lock by force: by removing the node or ending the session.
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
// In the server's history two conflicting holds never overlap, and the tokens of successive exclusive holds
// grow. But a process may pause after it last looked at its lock, and then act too late; no client can
// prevent that. So send [Lease.Token] with every write and let the resource refuse older tokens (package
// [github.com/zlockd/zlockd/client/fence]), or write to znodes with [Lease.Txn]. docs/locks.md says which
// guarantee depends on what.
//
// # What the package does not do
//
// The client does not hide the loss of a session, because only the program knows what to clean up. A holder
// never silently gets its lock again. A waiter queues again by itself, because it has nothing to lose. There
// is no adapter to sync.Locker, because a lock that can be lost must not look like a lock that cannot.
//
// # How it is built
//
// This package has the calls of a program, and what each call promises. Internal packages do the work.
// internal/take asks for locks: a call contends in one session after another until it has its lock.
// internal/hold keeps one grant until it is lost or given back. internal/session keeps one session of package
// [github.com/zlockd/zlockd/client/zk] after another, and removes abandoned nodes. internal/inspect reads
// locks for the [Inspector]. Package [github.com/zlockd/zlockd/client/recipe] decides what nodes mean.
package client
