// Package wire is a lean ZooKeeper client for load generation. It has no
// goroutine, no lock and no table of requests: the caller appends requests,
// flushes them in one write and reads replies in order. So the client's share
// of a small machine stays small, and is the same for every server measured.
//
// It keeps no session alive by itself; Ping does, for connections that idle.
package wire
