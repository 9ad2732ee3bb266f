// Package history judges what clients saw of an ensemble: whether it kept the
// guarantees a lock server must keep, from the outside.
//
// A test records what each client sent and received, in a [Recorder], and
// gives it to [Check]. The checker believes the zxids: it replays the
// acknowledged writes in their order through a model of its own and compares
// every reply and every event with the model at its zxid. Since each reply says
// which state it was read from, this takes about linear time, whatever the
// number of clients; it does not search for an order.
//
// What it verifies, by the names that the violations carry:
//
//	G1  real time: what was answered before a write was sent has a lower zxid
//	G2  no acknowledged write is lost (a read that contradicts one is G6)
//	G3  a write without an answer took effect once or never, and not too late
//	G4  zxids never fall, in a session and across a client's reconnects
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
//	G16 events come in order, fit a change, and only to those who wait for it
//	G17 who waits for a change hears of it, also across a reconnect
//	G19 sequence numbers rise and say how many children were created before
//
// Writes whose answer never came are placed where something proves them: a
// zxid in somebody's Stat, an event. What nobody saw stays optional, and so
// does the moment at which a silent session ended; the checks that such a
// write could touch are loosened by exactly the writes still open. A history
// without lost answers is checked exactly.
//
// The model knows nodes of all kinds, but no permissions and no quotas:
// workloads use open ACLs. Every client that changes something under
// [Options.Root] must be recorded.
package history
