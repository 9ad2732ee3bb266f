package tree

// Limits of what a tree accepts. They are part of what every server must
// decide alike, hence constants and not settings: servers that disagreed about
// one would hold different trees. Nothing is checked against them when a
// snapshot is loaded, because what was once accepted must stay readable.
const (
	// MaxPath is the length of the longest legal path, in bytes.
	MaxPath = 64 << 10
	// MaxDepth is how many names a legal path may have.
	MaxDepth = 1024
	// MaxACLEntries and MaxACLBytes bound an ACL after expansion; a larger
	// one is answered with INVALIDACL.
	MaxACLEntries = 1000
	MaxACLBytes   = 64 << 10
	// MaxChildren bounds one directory, MaxEphemerals what one session owns,
	// and MaxListing the list of either, so that it can always be sent; and
	// the paths of all events when a session ends are no more than that. (A
	// path may be long and yet cost next to nothing, for it shares most of
	// its names with others: counting nodes is not enough.) A create beyond
	// them is answered with THROTTLEDOP.
	MaxChildren   = 5_000_000
	MaxEphemerals = 500_000
	MaxListing    = 64 << 20
	// MaxMultiReadReply bounds the answer to a multiRead, which could
	// otherwise ask for one large node ten thousand times. What is larger is
	// answered with THROTTLEDOP.
	MaxMultiReadReply = 64 << 20
)

// limits are the bounds that a test wants smaller.
type limits struct {
	children   int
	listing    int
	ephemerals int
	multiRead  int
}

var defaultLimits = limits{MaxChildren, MaxListing, MaxEphemerals, MaxMultiReadReply}
