package entries

import "errors"

// A raft log entry is a batch of requests:
//
//	entry   := version u8 · kind u8 · crc32c u32 · leader's wall time i64 (ms) · sets? · block*
//	block   := origin server u32 · birth u32 · first seq u64 · count u32 · length u32 · request*
//	request := session i64 · generation u32 · op i32 · identities · body
//
// The checksum covers everything but itself. A block of origin 0 holds the leader's own requests (expiry,
// sweeps). It has no stream, so Apply cannot recognise a repetition, and every request in it must be
// conditional.
const (
	version         = 1
	HeaderSize      = 14 // size of an entry without blocks
	BlockHeaderSize = 24 // size of a block without requests
	requestMinSize  = 24
)

// Kinds of entries. The kind is in the low bits of an entry's second byte.
const (
	KindBatch byte = 1
	kindNamed byte = 2 // a batch with sets of identities
	kindMask  byte = 0x07

	KindFounding  byte = 3 // a batch that begins a cluster with rules unknown to release 0.1.0
	KindTicketing byte = 4 // a batch that allows tickets, which release 0.1.0 does not know
)

// Options of the leader that proposed an entry. They are the bits of an entry's second byte that are not its
// kind. They travel with the entry, because servers may be started with different options. To release 0.1.0,
// which does not know OneLayout, an entry with this bit has an unknown kind.
const (
	OneLayout byte = 0x08 // refuse a contender whose layout differs from that of the present contenders

	NoQuota byte = 0x10 // ignore hard quotas
	NoTTL   byte = 0x20 // refuse TTL nodes
	Full    byte = 0x40 // refuse requests that need more room
	LowDisk byte = 0x80 // a disk has little free space; see state.Refusal. The flag changes no request's effect
)

// ErrCorrupt marks an entry whose bytes have changed since the leader sealed it. The server must stop,
// because its state could then differ from the other servers'.
var ErrCorrupt = errors.New("log entry is corrupt")

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
	// BatchBytes bounds a block of several requests, and an entry of several blocks. In longer blocks the
	// requests would wait for longer than the fewer syncs save.
	BatchBytes = 256 << 10
	// MaxBlock is the longest block: several requests of less than BatchBytes, or one request.
	MaxBlock = BlockHeaderSize + MaxRequest
	// MaxSize is the longest log entry: the leader's own requests, the block of its stream, and blocks of
	// other servers up to BatchBytes. The log stores must accept it.
	MaxSize = HeaderSize + 3*(BatchBytes+MaxBlock)
)
