// Package peer is what goes between servers: the peer port and who may use it,
// TLS, greetings, questions and their answers, the messages of a link, and
// raft's transport on top of them. It decides nothing about the cluster: what a
// server says of itself and whom it admits, it asks its [Host].
//
// One peer port serves several purposes, told apart by the first byte. Each
// connection begins with a greeting that says who calls whom; the answer says
// at once whether, or why not, the caller is wanted.
//
//	connection := purpose u8 · length u32 · greeting (JSON) · answer
//	answer     := 0 | 1 · length u32 · reason
package peer
