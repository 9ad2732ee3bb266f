// Package turns decides what a contender of a lock does: whether it holds the lock, which contenders must go
// first, and which node it watches.
//
// A rule has two forms. One decides for a single contender, from the names that its client has listed:
// [Rule.Place] in a queue, [DecideRead], [DecideWrite] and [DecideUpgrade] under a policy, [DecidePermits]
// and [TryPermits] for permits. The other, [Assemble], shows all contenders of many locks at once. Tests
// compare the two forms in all states of a few contenders.
//
// The caller of Assemble reads each directory as a [Dir]. If the names do not show which contender waits,
// [Watches] tells which sessions watch which nodes. A caller that does not know the watches passes [Unseen].
package turns
