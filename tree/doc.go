// Package tree holds the znodes, and what each operation does to them.
//
// A [Tree] is changed in place by one writer: every rule of a write (version,
// ACL, existence, quota, limit) is decided in [Tree.Apply] against the only
// state there is, so that every server that applies the same changes in the
// same order holds the same tree, gives the same replies and fires the same
// events. Apply knows no clock, no random source and no configuration: what
// it needs travels in the [Change].
//
// Three invariants hold between calls:
//
//   - A write that answers an error, or a multi that fails, has changed
//     nothing: not a counter, not the digest, not an event.
//   - Everything that is not in a node (ephemerals by session, counts, sizes,
//     activated quotas, containers) is derived, and a [Loader] rebuilds it.
//   - Reads change nothing that another read can see, so they may run side by
//     side under a read lock held by the caller.
//
// A [Snapshot] starts in constant time and shows the tree as it was at its
// start while writes go on: the first change to a node that was not yet
// written out keeps a copy of the node.
//
// The package does not know sessions (an ephemeral's owner is a number), connections, the log, locks and
// time. Package nodes has the nodes and all code that only reads them. Package bounds says what a request may
// ask for and what it costs. Package watches matches events with the connections that wait for them.
package tree
