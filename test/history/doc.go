// Package history judges from the outside, by what clients saw, whether an ensemble kept the
// guarantees of a lock server.
//
// A test records what each client sent and received, in a [Recorder], and gives the records to
// [Check]. The checker believes the zxids: it replays the acknowledged writes in their order
// through its own model and compares every reply and every event with the model at its zxid.
// Each reply says which state it was read from. So the check takes about linear time, whatever
// the number of clients; it does not search for an order.
//
// What it verifies, by the names that the violations carry:
//
//	G1  real time: what was answered before a write was sent has a lower zxid
//	G2  no acknowledged write is lost (a read that contradicts one is G6)
//	G3  a write without an answer took effect once or never, and not too late
//	G4  zxids never fall, in a session and across a client's reconnects, not even in the
//	    replies to pings; a reply that shows a change has no lower zxid than the change
//	G5  replies come in the order of requests
//	G6  every read equals the state at its zxid, in every field it shows
//	G7  after sync a read sees everything acknowledged before the sync
//	G8  a multi is seen whole or not at all (by G6 and G16)
//	G9  servers that report a digest for one zxid report the same
//	G10 a session is not ended before its timeout has passed since its last
//	    request
//	G12 a session's end takes all of its ephemerals, and it stays ended
//	G14 session ids do not repeat
//	G15 an event comes before any reply that shows its change
//	G16 events come in order, fit a change, and go only to watchers
//	G17 a client that waits for a change hears of it, also across a reconnect
//	G19 sequence numbers rise and say how many children were created before
//	K8  the requests of a ticket, repeated and late ones too, see one ticket: it moves only from
//	    its place to its hold to its end, and is not forgotten
//	K9  of two contenders that exclude each other, at most one surely holds a lock at any time, or a permit
//	    with a given number; tokens rise, and a hold lasts for as long as an answer promised
//	K12 no span of a rate's time has more draws than its limit, and a draw that comes again with its secret
//	    is not made again
//
// A [Backup] that a server gave while the history went on counts as a sync and reads of all nodes.
//
// The checker places unanswered writes where a zxid in a Stat or an event proves them. A write that no
// client saw stays optional, and so does the moment when a silent session ended. The writes that are still
// open relax only the checks that they could affect. A history without lost answers is checked exactly.
//
// The model knows nodes of all kinds and their ACLs, but no quotas. It asks package rights, which is not the
// servers' code, what an ACL allows. The history must record every client that changes nodes under
// [Options.Root].
package history
