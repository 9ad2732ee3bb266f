// Package client gives Go programs locks, read-write locks, semaphores,
// elections and barriers on a zlockd or ZooKeeper ensemble.
//
// There is one idea, the [Lease]: the right to act, given by a lock, that can
// be lost at any time. A call that waits takes a context and ends in a lease or
// an error, never both. A lease ends by [Lease.Unlock] or by loss, and a loss
// is told through [Lease.Context]: before anybody else can be given the lock, unless
// somebody took it away by force, removing the node or ending the session.
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
// # What can be relied on
//
// In the server's history two conflicting holds never overlap, and the tokens
// of successive exclusive holds grow. No client can stop a process that was
// paused after it last looked at its lock: send [Lease.Token] along with every
// write and let the resource refuse old ones (package fence), or write to
// znodes with [Lease.Txn]. docs/locks.md says which guarantee
// depends on what.
//
// # What the package refuses to do
//
// It does not hide the loss of a session: only the program knows what to clean
// up. A holder never silently gets its lock again; a waiter, which has nothing
// to lose, queues again by itself. There is no adapter to sync.Locker, because
// a lock that can be lost must not look like one that cannot.
//
// # How it is built
//
// A Client owns one session, of package [github.com/zlockd/zlockd/client/zk]. Its
// heartbeat is in session.go, its deadline and what ends a wait in epoch.go, reads and
// changes that are repeated until their outcome is known in calls.go. A call is an
// attempt (attempt.go), carried from session to session until there is a hold
// (hold.go): the nodes that stand for it, of one or of several leases. Every queue-like
// recipe stands on one contender (contender.go): create a node that can be recognised,
// find whom to wait for (place.go), wait, leave cleanly. Nodes nobody wants any more go
// to the reaper. A recipe's file holds only what differs.
package client
