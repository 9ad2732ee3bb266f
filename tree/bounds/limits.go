// Package bounds says what a request may ask for and what it costs: limits, steps, and the form of paths.
// Every server judges by it alike, so its numbers belong to the format of the log.
package bounds

// Limits of what a tree accepts. Every server must decide alike about them, so they are constants
// and not settings: servers that disagreed about one would hold different trees. A Loader does not
// check them, because an accepted node must stay readable.
const (
	// MaxPath is the length of the longest legal path, in bytes.
	MaxPath = 64 << 10
	// MaxDepth is how many names a legal path may have.
	MaxDepth = 1024
	// MaxChildren bounds one directory, MaxEphemerals the nodes that one session owns, and
	// MaxListing the list of either, so that it can always be sent. The paths of all events at the
	// end of a session take no more than that. (A path may be long and yet cost next to nothing,
	// for it shares most of its names with others: counting nodes is not enough.) A create beyond
	// them is answered with THROTTLEDOP.
	MaxChildren   = 5_000_000
	MaxEphemerals = 500_000
	MaxListing    = 64 << 20
	// MaxMultiReadReply bounds the answer to a multiRead, which could otherwise ask for one large
	// node ten thousand times. Stock clients take 4 MiB by default. A larger answer becomes THROTTLEDOP.
	MaxMultiReadReply = 16 << 20
)
