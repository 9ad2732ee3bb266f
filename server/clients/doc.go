// Package clients runs the client ports of a server: it accepts connections, within limits, tells them what
// happens to the replicated state, and tells operators what clients do. It learns of changes as a
// raftfsm.Observer. What one connection does is in package conn.
package clients
