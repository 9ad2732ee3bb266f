// Package tickets serves holds of locks, and places in their queues, to callers without a process: over
// HTTP, to anything that has curl. docs/tickets.md is its contract.
//
// A ticket is a session without a connection, with one contender. The contender's node has an ordinary name,
// so that contenders of Curator, kazoo and zlock stand in the same queue. The replicated state opens a ticket
// in one log entry. This package decides by client/recipe on the tree, like every other client.
//
// The caller chooses the secret of its ticket, by which a repeated request is also recognised. Only the
// secret's hash leaves this package.
package tickets
