// Package clients handles a server's client connections, from bytes to a call on the replicated state and
// back.
//
// Every connection has one goroutine, or none while its client only pings (resting.go). The goroutine
// decodes all complete frames it has received, answers reads from the local state, hands writes to the
// [Replica] and writes its outbox once no complete frame is left. The goroutine that applies the log
// appends outcomes of writes and watch events to the outbox. It never touches a socket: a small pool
// of flushers does, once per batch.
//
// Three rules hold throughout:
//
//   - Outbox order is state order. Replies and events are appended while the
//     state lock is held, so a client never sees a change before its event,
//     and a watch never fires before the reply of the read that set it.
//   - Replies keep the order of requests. A request that is answered here waits until the connection's own
//     writes have been answered.
//   - Nothing is dropped in part. A connection that cannot take an event, or
//     whose request has no certain outcome, is closed; the client's reconnect
//     is the retry.
//
// The files, from the ground up: conn.go defines the state of one client, and shared.go what it has in common
// with all others, which is all that it knows of its server; registry.go holds those that are present; cost.go
// charges requests to the accounts of package budget; read.go, outcome.go and the files named after a request
// answer requests; request.go chooses among them; serve.go and resting.go run a connection; server.go,
// listen.go, observer.go and figures.go run the whole server. Below are rooms that do not know what a
// connection is for: request says what a client asks for; outbox holds what waits for a client, writes it and
// ends the connection; watchers delivers events; entrance says whether clients are let in, and options on
// which terms; budget, rest, inbox, identity and ends.
//
// The package knows nothing of raft. It calls the replicated state through [entrance.Replica], and learns of
// changes as a raftfsm.Observer.
package clients
