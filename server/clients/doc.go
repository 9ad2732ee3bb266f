// Package clients runs the client ports of a server. It accepts connections, within limits. It tells clients
// what happens to the replicated state, and tells operators what clients do. It learns of changes as a
// raftfsm.Observer. Package conn says what a single connection does.
package clients
