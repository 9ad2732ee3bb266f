package entries

// All limits of sizes. Writers and readers use the same limits, because every server must be able to read
// every acknowledged write after every restart. A test checks each limit.
const (
	// MaxFrame is the largest value of --max-frame: the longest request of a client, and so the
	// longest data of a node.
	MaxFrame = 64 << 20
	// MaxIDs and MaxIDBytes bound the identities of one client.
	MaxIDs     = 64
	MaxIDBytes = 16 << 10

	// MaxRequest is the longest request in a stream, as it is encoded.
	MaxRequest = requestMinSize + MaxFrame + MaxIDBytes + 8*MaxIDs
	// BatchBytes bounds a block of several requests, and an entry of several blocks. Longer ones would cost
	// more latency than fewer syncs save.
	BatchBytes = 256 << 10
	// MaxBlock is the longest block: several requests of less than BatchBytes, or one request.
	MaxBlock = BlockHeaderSize + MaxRequest
	// MaxSize is the longest log entry: the leader's own requests, the block of its stream, and blocks of
	// other servers up to BatchBytes. The log stores must accept it.
	MaxSize = HeaderSize + 3*(BatchBytes+MaxBlock)
)
