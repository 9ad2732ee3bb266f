// Package faultproxy is a TCP proxy between ZooKeeper clients and servers that
// understands frames: it can drop, delay, hold or answer one chosen request or
// reply, cut the connection before or after it, swallow everything, and count
// what passes. It knows only as much of the protocol as it needs to tell frames
// apart, and it is used to test what becomes of every lost message.
package faultproxy
