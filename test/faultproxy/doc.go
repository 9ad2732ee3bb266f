// Package faultproxy is a TCP proxy between ZooKeeper clients and servers that understands
// frames. It can drop, delay, hold or answer one chosen request or reply, cut the connection
// before or after it, swallow everything, and count frames. It knows only enough of the
// protocol to tell frames apart. Tests use it to check what happens after every lost message.
package faultproxy
