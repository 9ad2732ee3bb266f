package rest

import "syscall"

// Sleeper is a connection that can rest.
type Sleeper interface {
	// Place returns where it rests.
	Place() *Place
	// Raw returns the connection's socket. It returns nil if the connection cannot rest, because it is not plain
	// TCP.
	Raw() syscall.RawConn
	// IsOpen reports whether it has not begun to end.
	IsOpen() bool
	// Visit reads the arrived bytes and answers pings. If anything else has arrived, it returns the bytes
	// read last, in buf. last says that the connection's end has arrived too.
	Visit(p Poller, last bool, buf []byte) (n int, err error)
	// Rise gives the connection its own goroutine, with the bytes read last, or with the error of the read.
	Rise(read []byte, err error)
}

// Place is where a Sleeper rests. It is under the lock of Rest.
type Place struct {
	rests bool   // the connection has no goroutine, and no visit runs
	slot  uint32 // valid while it rests or is visited
}

// Poller reports which connections have something to read.
type Poller interface {
	// Takes reports whether Add can take the connection.
	Takes(Sleeper) bool
	// Add makes Wait return slot when bytes or the end of the connection arrive, and again for each further
	// arrival. Bytes that wait already count as an arrival.
	Add(c Sleeper, slot uint32) error
	// Remove removes the connection, unless its end has done so.
	Remove(Sleeper)
	// Wait waits for arrivals. It may also return slots that already have another connection.
	Wait(buf []Arrival) (n int, err error)
	// Read reads the arrived bytes. It returns 0 without an error if none have arrived. Only the goroutine that
	// calls Wait calls it.
	Read(c Sleeper, b []byte) (n int, err error)
	// Close ends Wait.
	Close()
}

// Arrival says that the connection in a slot may have something to read.
type Arrival struct {
	Slot uint32
	Last bool // the connection has ended: no further arrival follows
}
