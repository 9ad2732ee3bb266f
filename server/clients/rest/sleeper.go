package rest

import "syscall"

// Sleeper is a connection that can rest.
type Sleeper interface {
	// Place returns the place at which the connection rests.
	Place() *Place
	// Raw returns the connection's socket. It returns nil if the connection cannot rest, because it is not plain
	// TCP.
	Raw() syscall.RawConn
	// IsOpen reports whether the connection has not begun to end.
	IsOpen() bool
	// Visit reads the arrived bytes and answers pings. If it reads anything else, it leaves the bytes of that
	// read in `buf` and returns their number. `last` says that the client has also closed the connection.
	Visit(p Poller, last bool, buf []byte) (n int, err error)
	// Rise gives the connection its own goroutine. The goroutine gets the bytes that a visit read last, or the
	// error of the read.
	Rise(read []byte, err error)
}

// Place records where a Sleeper rests. The lock of Rest guards it.
type Place struct {
	rests bool   // the connection has no goroutine, and no visit runs
	slot  uint32 // valid while the connection rests or is visited
}

// Poller reports which connections have something to read.
type Poller interface {
	// Takes reports whether Add can take the connection.
	Takes(Sleeper) bool
	// Add makes Wait return `slot` when bytes or the end of the connection arrive, and again for each further
	// arrival. Bytes that have already arrived count as an arrival.
	Add(c Sleeper, slot uint32) error
	// Remove removes the connection, unless the connection's end has already removed it.
	Remove(Sleeper)
	// Wait waits for arrivals. Some may be out of date: their slots have other connections by now.
	Wait(buf []Arrival) (n int, err error)
	// Read reads the arrived bytes. It returns 0 without an error if none have arrived. Only the goroutine that
	// calls Wait calls Read.
	Read(c Sleeper, b []byte) (n int, err error)
	// Close ends Wait.
	Close()
}

// Arrival says that the connection in a slot may have something to read.
type Arrival struct {
	Slot uint32
	Last bool // the connection has ended: no further arrival follows
}
