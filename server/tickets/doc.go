// Package tickets serves holds of locks, and places in their queues, to callers without a process: over
// HTTP, to anything that has curl. docs/tickets.md is its contract.
//
// A ticket is a session that no connection has, with one contender of an ordinary name, so that Curator's,
// kazoo's and zlock's contenders stand in the same queue. The replicated state opens it in one log entry.
// This package decides by client/recipe over the tree, like every other contender.
//
// The caller makes the secret of its ticket, which is also what makes a repeated request the same one. Only
// its hash leaves this package.
package tickets
