// Package peer carries all messages between servers: the peer port and its admission, TLS, greetings,
// questions and their answers, the messages of a link, and raft's transport on top of them. It decides
// nothing about the cluster: its [Host] provides the server's status and decides which callers to admit.
//
// One peer port serves several purposes, distinguished by the first byte. Each connection begins with a
// greeting that names the caller and the called server; the answer admits the caller, or gives the reason for
// a refusal.
//
//	connection := purpose u8 · length u32 · greeting (JSON) · answer
//	answer  := 0 | 1 · length u32 · reason
package peer
