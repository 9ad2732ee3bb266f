package state

import "fmt"

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
	// MaxEntry is the longest log entry: the leader's own requests, the block of its stream, and blocks of
	// other servers up to BatchBytes. The log stores must accept it.
	MaxEntry = EntryHeaderSize + 3*(BatchBytes+MaxBlock)

	// MaxChunk is the longest chunk of a snapshot: chunkBytes and the bytes that the tree adds at once, or
	// one node of MaxFrame with its path and ACL.
	MaxChunk = MaxFrame + 1<<20
	// maxNode is the longest node that an import or a restore may bring: its chunk stays below MaxChunk,
	// whatever a snapshot puts before the node.
	maxNode = MaxChunk - 512<<10
	// sessionsChunk is how many bytes of the sessions go into one chunk.
	sessionsChunk = 64 << 20
)

// Check reports a request that is too long for a log entry.
func (r *Request) Check() error {
	if size := r.size(); size > MaxRequest {
		return fmt.Errorf("a request of %d bytes is too long: a log entry takes at most %d", size, MaxRequest)
	}
	return nil
}

// size is the length of r's encoding.
func (r *Request) size() int { return requestMinSize + len(r.Body) + IdentitiesSize(r.IDs) }
