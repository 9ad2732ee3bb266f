// Package tickets lets callers without a running process hold locks and stand in their queues. Callers use
// HTTP, so curl is enough. docs/tickets.md describes the protocol.
//
// A ticket is a session without a connection, with one contender. The contender's node has an ordinary name,
// so that it stands in one queue with contenders of Curator, kazoo and zlock. One log entry opens a ticket.
// The servers that apply it do not decide who holds the lock. This package decides that by the rules of
// client/recipe, like every other client.
//
// The caller chooses the secret of its ticket. The server also recognises a repeated request by the secret.
// Only the hash of the secret leaves this package.
package tickets
