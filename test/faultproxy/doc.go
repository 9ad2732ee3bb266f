// Package faultproxy is a TCP proxy between ZooKeeper clients and servers. It understands frames: it can
// drop, delay, hold or answer a chosen request or reply, cut the connection before or after that frame, drop
// all frames, and count frames. It knows only enough of the protocol to tell frames apart. Tests use it to
// check what happens after every lost message.
package faultproxy
