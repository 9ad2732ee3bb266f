// Package bounds says what a request may ask for and what it costs: limits, steps, and the form of paths.
// Every server must use the same numbers, so the numbers belong to the format of the log.
package bounds

// Limits of what a tree accepts. They are constants and not settings, because servers with different limits
// would get different trees. A Loader does not check the limits, because an accepted node must stay readable.
const (
	// MaxPath is the length of the longest legal path, in bytes.
	MaxPath = 64 << 10
	// MaxDepth is how many names a legal path may have.
	MaxDepth = 1024
	// MaxChildren bounds the nodes in one directory, and MaxEphemerals the nodes that one session owns.
	// MaxListing bounds the bytes of a list of such nodes, so that the list can always be sent. The paths of all
	// events at the end of a session take at most MaxListing bytes, too. (A bound on the number of nodes is not
	// enough: a long path costs little memory if it shares most of its names with other paths.) A create beyond
	// a bound is answered with THROTTLEDOP.
	MaxChildren   = 5_000_000
	MaxEphemerals = 500_000
	MaxListing    = 64 << 20
	// MaxMultiReadReply bounds the answer to a multiRead, which could otherwise ask for one large
	// node ten thousand times. Stock clients take 4 MiB by default. A larger answer becomes THROTTLEDOP.
	MaxMultiReadReply = 16 << 20
)
