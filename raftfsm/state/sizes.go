package state

import "fmt"

// The one table of sizes. A writer keeps to a limit, and a reader accepts no more and no less:
// every server must be able to read every acknowledged write, after every restart. A test walks
// the limits.
const (
	// MaxFrame is the largest value of --max-frame: the longest request of a client, and so the
	// longest data of a node.
	MaxFrame = 64 << 20
	// MaxIDs and MaxIDBytes bound the identities of one client.
	MaxIDs     = 64
	MaxIDBytes = 16 << 10

	// MaxRequest is the longest request in a stream, as it is encoded.
	MaxRequest = requestMinSize + MaxFrame + MaxIDBytes + 8*MaxIDs
	// BatchBytes is how long a block of several requests may become, and an entry of several
	// blocks: longer ones cost more latency than they save syncs.
	BatchBytes = 256 << 10
	// MaxBlock is the longest block: of less than BatchBytes, or of one request.
	MaxBlock = BlockHeaderSize + MaxRequest
	// MaxEntry is the longest log entry: the leader's acts, its own block, and
	// blocks of others until BatchBytes are reached. The log stores must take it.
	MaxEntry = EntryHeaderSize + 3*(BatchBytes+MaxBlock)

	// MaxChunk is the longest chunk of a snapshot: at most chunkBytes and what
	// the tree adds in one go, or one node of MaxFrame with its path and ACL.
	MaxChunk = MaxFrame + 1<<20
	// maxNode is the longest node that may come from elsewhere: a chunk that holds it can be read
	// back, whatever a snapshot puts in front of it.
	maxNode = MaxChunk - 512<<10
	// sessionsChunk is how much of the sessions is in one chunk.
	sessionsChunk = 64 << 20
)

// Check reports a request that is too long for a log entry.
func (r *Request) Check() error {
	if size := r.size(); size > MaxRequest {
		return fmt.Errorf("request of %d bytes, more than the %d that a log entry takes", size, MaxRequest)
	}
	return nil
}

// size is the length of r's encoding.
func (r *Request) size() int { return requestMinSize + len(r.Body) + IdentitiesSize(r.IDs) }
