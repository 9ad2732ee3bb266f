// Package fence is the resource's side of a lock: it refuses the writes of former holders that have not
// noticed yet that they lost the lock.
//
// No lock service can stop a process that pauses (by the scheduler, a garbage collector, a suspended machine)
// between checking its lock and writing. The resource can. Every hold carries a [Token], a number that grows
// with each exclusive hold of the same lock. The writer sends its token with the write, and the resource
// refuses a token smaller than the largest it has seen. A [Gate] keeps that largest token, a [Store] lets it
// outlive the process, and [Middleware] applies it to HTTP requests.
//
// A resource server needs only this package, which imports the standard library and nothing else, and knows
// neither the lock server nor its client.
//
// # Rules
//
//   - An exclusive token t is refused if t is smaller than the highest exclusive token so far; otherwise t
//     becomes the highest.
//   - A shared token t is refused if t is smaller than the highest exclusive token so far. It never becomes
//     the highest, because readers must not exclude each other.
//   - A permit (of a semaphore) has no order. Its token only identifies the hold, for a [Checker]; a Gate
//     refuses it.
//
// # The check and the write are one step
//
// A check followed by a write leaves a gap in which a later holder may write first. Close that gap in the
// form that fits the resource.
//
// SQL: the condition is part of the statement; no row updated means stale.
//
//	UPDATE account SET balance = :b, fence = :t
//	 WHERE id = :id AND fence <= :t
//
// Object stores: keep the token with the object. Read the token and refuse the write if the stored token is
// greater. Otherwise write on condition that the object has not changed since that read.
//
// Memory of one process: [Gate.Do], which [Middleware] uses.
//
// Files: [Gate.Do] with a [FileStore], which holds a local lock over the check and the write.
//
// Znodes: the lease's Txn checks in the same transaction that the hold node still exists, so the write takes
// effect only while the lock is held, without any trust in time.
//
// A resource that can do none of these is protected only by time, that is by the session's margin and a lock
// delay. Time makes damage unlikely, but does not exclude it.
package fence
