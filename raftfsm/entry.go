package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/zlockd/zlockd/jute"
)

// A raft log entry is a batch of requests:
//
//	entry   := version u8 · kind u8 · crc32c u32 · leader's wall time i64 (ms) · block*
//	block   := origin server u32 · birth u32 · first seq u64 · count u32 · length u32 · request*
//	request := session i64 · generation u32 · op i32 · identities · body
//
// The checksum covers everything but itself. Origin 0 is the leader acting on
// its own account (expiry, sweeps): such a block has no stream and is applied
// wherever it stands, so every request in it must be conditional.
const (
	entryVersion    = 1
	entryHeaderSize = 14
	blockHeaderSize = 24
	requestMinSize  = 24
)

// Kinds of entries. The low bits name the kind, the high ones are options of
// the leader that proposed it: they must travel, because servers may differ.
const (
	kindBatch    byte = 1
	kindMask     byte = 0x0f
	entryNoQuota byte = 0x10 // hard quotas are not enforced
	entryNoTTL   byte = 0x20 // TTL nodes are refused
	entryFull    byte = 0x40 // what needs more room is refused
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// errCorrupt marks an entry that is not what was proposed. It must stop the
// server: serving on would let servers differ.
var errCorrupt = errors.New("log entry is corrupt")

// beginEntry appends an entry's header to b, which must be empty.
func beginEntry(b []byte, options byte) []byte {
	b = append(b, entryVersion, kindBatch|options, 0, 0, 0, 0)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

// sealEntry stamps the time and the checksum onto a complete entry.
func sealEntry(b []byte, now int64) {
	binary.BigEndian.PutUint64(b[6:], uint64(now))
	binary.BigEndian.PutUint32(b[2:], entrySum(b))
}

func entrySum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:2], crcTable), crcTable, b[6:])
}

// checkEntry verifies version, kind and checksum.
func checkEntry(b []byte) error {
	switch {
	case len(b) < entryHeaderSize:
		return fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	case entrySum(b) != binary.BigEndian.Uint32(b[2:]):
		return fmt.Errorf("%w: checksum mismatch", errCorrupt)
	case b[0] != entryVersion:
		return fmt.Errorf("log entry of format %d is newer than this program understands (%d); use the version that wrote it", b[0], entryVersion)
	case b[1]&kindMask != kindBatch:
		return fmt.Errorf("log entry of unknown kind %d", b[1])
	}
	return nil
}

// block is a run of requests of one stream, not yet decoded.
type block struct {
	origin, birth uint32
	first         uint64
	count         uint32
	requests      []byte
}

// appendBlock appends a block whose requests are already encoded.
func appendBlock(b []byte, bl *block) []byte {
	at := len(b)
	b = append(b, make([]byte, blockHeaderSize)...)
	putBlockHeader(b[at:], bl)
	return append(b, bl.requests...)
}

func putBlockHeader(b []byte, bl *block) {
	binary.BigEndian.PutUint32(b, bl.origin)
	binary.BigEndian.PutUint32(b[4:], bl.birth)
	binary.BigEndian.PutUint64(b[8:], bl.first)
	binary.BigEndian.PutUint32(b[16:], bl.count)
	binary.BigEndian.PutUint32(b[20:], uint32(len(bl.requests)))
}

// nextBlock cuts the first block off b.
func nextBlock(b []byte) (bl block, rest []byte, err error) {
	if len(b) < blockHeaderSize {
		return bl, nil, fmt.Errorf("%w: block header cut short", errCorrupt)
	}
	bl.origin = binary.BigEndian.Uint32(b)
	bl.birth = binary.BigEndian.Uint32(b[4:])
	bl.first = binary.BigEndian.Uint64(b[8:])
	bl.count = binary.BigEndian.Uint32(b[16:])
	size := binary.BigEndian.Uint32(b[20:])
	b = b[blockHeaderSize:]
	if uint64(size) > uint64(len(b)) || uint64(bl.count)*requestMinSize > uint64(size) {
		return bl, nil, fmt.Errorf("%w: block cut short", errCorrupt)
	}
	bl.requests = b[:size:size]
	return bl, b[size:], nil
}

// checkBlock verifies that a block from a peer decodes, before it is proposed.
func checkBlock(bl *block) error {
	var r Request
	var ids []jute.ID
	rest := bl.requests
	for range bl.count {
		var err error
		if rest, ids, err = decodeRequest(rest, &r, ids[:0]); err != nil {
			return err
		}
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: bytes behind the last request", errCorrupt)
	}
	return nil
}

// appendRequest appends r's encoding, which is also its copy.
func appendRequest(b []byte, r *Request) []byte {
	b = jute.AppendLong(b, r.Session)
	b = binary.BigEndian.AppendUint32(b, r.Gen)
	b = jute.AppendInt(b, int32(r.Op))
	b = jute.AppendInt(b, int32(len(r.IDs)))
	for i := range r.IDs {
		b = jute.AppendString(b, r.IDs[i].Scheme)
		b = jute.AppendString(b, r.IDs[i].ID)
	}
	return jute.AppendBuffer(b, r.Body)
}

// decodeRequest cuts the first request off b into r. Identities are appended
// to ids, which is returned for reuse. r points into b.
func decodeRequest(b []byte, r *Request, ids []jute.ID) (rest []byte, _ []jute.ID, err error) {
	d := jute.NewDecoder(b)
	r.Session = d.Long()
	r.Gen = uint32(d.Int())
	r.Op = jute.OpCode(d.Int())
	for range d.Count(8) {
		scheme, _ := d.String()
		id, _ := d.String()
		ids = append(ids, jute.ID{Scheme: scheme, ID: id})
	}
	r.IDs = ids
	r.Body = d.Buffer()
	if err := d.Err(); err != nil {
		return nil, ids, fmt.Errorf("%w: request: %v", errCorrupt, err)
	}
	return d.Rest(), ids, nil
}
