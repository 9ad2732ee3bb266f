// Package tickets lets callers without a running process hold locks and stand in their queues. Callers use
// HTTP, so curl is enough. docs/tickets.md describes the protocol.
//
// A ticket is a session without a connection, with one contender. The contender's node has an ordinary name,
// so that contenders of Curator, kazoo and zlock are in the same queue. The replicated state opens a ticket
// in one log entry. Like every other client, this package decides by the rules of client/recipe.
//
// The caller chooses the secret of its ticket. The server also recognises a repeated request by the secret.
// Only the hash of the secret leaves this package.
package tickets
