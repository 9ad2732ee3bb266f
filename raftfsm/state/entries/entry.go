package entries

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/zlockd/zlockd/jute"
)

// crcTable returns the table of CRC-32C. To make it takes a quarter of a millisecond, and most calls of zlock
// never need it. So it is made on first use.
func crcTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Begin appends an entry's header to b, which must be empty. Blocks are
// appended to the result, which Seal completes.
func Begin(b []byte, options byte) []byte {
	b = append(b, version, KindBatch|options, 0, 0, 0, 0)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

// One returns an entry of the given kind with one request of the leader's own.
func One(kind, options byte, r *Request, now int64) []byte {
	entry := Begin(nil, options)
	entry[1] = kind | options
	own := Block{Count: 1, Requests: r.Append(nil)}
	entry = own.Append(entry)
	Seal(entry, now)
	return entry
}

// Seal stamps the time and the checksum onto a complete entry.
func Seal(b []byte, now int64) {
	binary.BigEndian.PutUint64(b[6:], uint64(now))
	binary.BigEndian.PutUint32(b[2:], entrySum(b))
}

func entrySum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:2], crcTable()), crcTable(), b[6:])
}

// Check verifies version, kind and checksum.
func Check(b []byte) error {
	switch {
	case len(b) < HeaderSize:
		return fmt.Errorf("%w: %d bytes", ErrCorrupt, len(b))
	case entrySum(b) != binary.BigEndian.Uint32(b[2:]):
		return fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
	case b[0] != version:
		return fmt.Errorf("the log entry has format %d, but this program understands format %d; use the "+
			"version "+
			"that wrote the entry",
			b[0], version)
	case b[1]&kindMask < KindBatch || b[1]&kindMask > KindTicketing:
		return fmt.Errorf("log entry of unknown kind %d", b[1])
	}
	return nil
}

// Block is a run of requests of one stream, not yet decoded.
type Block struct {
	Origin   uint32 // id of the server that owns the stream; 0: the leader's own requests
	Birth    uint32 // birth of the stream; 0: the block opens a stream, or belongs to none
	First    uint64 // number of the first request in the stream
	Count    uint32
	Requests []byte // encoded, one after the other
}

// Append appends the block's encoding.
func (bl *Block) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, BlockHeaderSize)...)
	bl.PutHeader(b[at:])
	return append(b, bl.Requests...)
}

// PutHeader writes the first BlockHeaderSize bytes of the block's encoding. The
// requests follow.
func (bl *Block) PutHeader(b []byte) {
	binary.BigEndian.PutUint32(b, bl.Origin)
	binary.BigEndian.PutUint32(b[4:], bl.Birth)
	binary.BigEndian.PutUint64(b[8:], bl.First)
	binary.BigEndian.PutUint32(b[16:], bl.Count)
	binary.BigEndian.PutUint32(b[20:], uint32(len(bl.Requests)))
}

// NextBlock cuts the first block off b.
func NextBlock(b []byte) (bl Block, rest []byte, err error) {
	if len(b) < BlockHeaderSize {
		return bl, nil, fmt.Errorf("%w: the block header is cut short", ErrCorrupt)
	}
	bl.Origin = binary.BigEndian.Uint32(b)
	bl.Birth = binary.BigEndian.Uint32(b[4:])
	bl.First = binary.BigEndian.Uint64(b[8:])
	bl.Count = binary.BigEndian.Uint32(b[16:])
	size := binary.BigEndian.Uint32(b[20:])
	b = b[BlockHeaderSize:]
	if uint64(size) > uint64(len(b)) || uint64(bl.Count)*requestMinSize > uint64(size) {
		return bl, nil, fmt.Errorf("%w: block cut short", ErrCorrupt)
	}
	bl.Requests = b[:size:size]
	return bl, b[size:], nil
}

// Check verifies that a block from another server can be decoded, before the leader proposes it.
func (bl *Block) Check() error {
	var r Request
	var ids []jute.ID
	rest := bl.Requests
	for range bl.Count {
		var err error
		if rest, ids, err = Decode(rest, nil, &r, ids[:0]); err != nil {
			return err
		}
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: bytes follow the last request", ErrCorrupt)
	}
	return nil
}

// OnlyEphemeralCreates reports whether all requests of an entry create ephemeral nodes. The entry must be
// well formed; it need not be sealed.
func OnlyEphemeralCreates(entry []byte) bool {
	for rest := entry[HeaderSize:]; len(rest) > 0; {
		bl, next, err := NextBlock(rest)
		if err != nil {
			return false
		}
		rest = next
		for requests := bl.Requests; len(requests) > 0; {
			var head, body []byte
			head, _, body, requests = split(requests)
			op := jute.OpCode(binary.BigEndian.Uint32(head[12:]))
			// The flags are the last field.
			if op != jute.OpCreate && op != jute.OpCreate2 || body[len(body)-1]&byte(jute.FlagEphemeral) == 0 {
				return false
			}
		}
	}
	return true
}

// Logged is a request in the log, with its place.
type Logged struct {
	Origin, Birth uint32 // the stream of the request; Origin 0: the leader's own request
	Seq           uint64 // number of the request in the stream
	*Request             // valid only during the call of fn
}

// Read calls fn for every request of an entry. It returns the time (ms since 1970) at which
// the leader sealed the entry, and the leader's options.
func Read(entry []byte, fn func(*Logged) error) (time int64, options byte, err error) {
	if err := Check(entry); err != nil {
		return 0, 0, err
	}
	time, options = int64(binary.BigEndian.Uint64(entry[6:])), Options(entry)
	sets, rest, err := Sets(entry)
	if err != nil {
		return time, options, err
	}
	for len(rest) > 0 {
		var bl Block
		if bl, rest, err = NextBlock(rest); err != nil {
			return time, options, err
		}
		requests := bl.Requests
		for i := range uint64(bl.Count) {
			var r Request
			if requests, _, err = Decode(requests, sets, &r, nil); err != nil {
				return time, options, err
			}
			if err := fn(&Logged{bl.Origin, bl.Birth, bl.First + i, &r}); err != nil {
				return time, options, err
			}
		}
	}
	return time, options, nil
}

// IsFull reports whether the leader that sealed an entry refuses requests that need more room. Apply then
// refuses creates and longer data. It also refuses long ACLs, as it does when a disk has little free space.
// The entry must have been checked.
func IsFull(entry []byte) bool { return entry[1]&Full != 0 }

// Low reports whether the leader that sealed an entry knew of a disk with little free space. The entry must
// have been checked.
func Low(entry []byte) bool { return entry[1]&LowDisk != 0 }

// Time returns the leader's time when it sealed an entry, in ms since 1970.
func Time(entry []byte) int64 { return int64(binary.BigEndian.Uint64(entry[6:])) }

// Options returns the options of the leader that proposed an entry. The entry must have been checked.
func Options(entry []byte) byte { return entry[1] &^ kindMask }
