package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

const (
	headerSize = 24 // bytes of a segment's header
	endSize    = 16 // bytes at the end of a segment, which hold the secret twice
	recordSize = 56 // bytes of a record without data
	sector     = 512

	mostNoted = 1<<12 - 1 // a record counts at most this many empty sectors

	// MaxData is the largest length of an entry with its extensions. The log refuses to store a longer entry,
	// because it could not read the entry back.
	MaxData = 256<<20 - recordSize
)

// maxRecord is a variable, so that a test can change the limit.
var maxRecord = recordSize + MaxData

// fits() returns an error if an entry is too long.
func fits(entries []*raft.Log) error {
	for _, l := range entries {
		if n := len(l.Data) + len(l.Extensions); n > maxRecord-recordSize {
			return fmt.Errorf("append entry %d: it has %d bytes, and at most %d are allowed", l.Index, n,
				maxRecord-recordSize)
		}
	}
	return nil
}

var (
	magic    = []byte("zlklog\x00\x01")
	crcTable = crc32.MakeTable(crc32.Castagnoli)

	errEnd     = errors.New("end of the log")
	errTorn    = errors.New("torn write")
	errDamaged = errors.New("damaged")
	errTerm    = fmt.Errorf("%w: its term is older than that of the entry before it", errDamaged)
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crcTable) }

func aligned(n int) int { return (n + 7) &^ 7 }

// appendRecord appends a log entry as part of a batch; seal() completes it.
func appendRecord(b []byte, l *raft.Log, batch, secret uint64) []byte {
	size := recordSize + len(l.Data) + len(l.Extensions)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, ^uint32(size))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = append(b, byte(l.Type), 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, l.Index)
	b = binary.BigEndian.AppendUint64(b, l.Term)
	b = binary.BigEndian.AppendUint64(b, batch)
	b = binary.BigEndian.AppendUint64(b, secret)
	b = binary.BigEndian.AppendUint64(b, uint64(len(l.Extensions)))
	b = append(b, l.Data...)
	b = append(b, l.Extensions...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// seal() completes the record at the start of b. The argument `at` is the offset of the record in the file.
// seal() writes the number of empty sectors twice, so that a reader notices a flipped bit.
func seal(b []byte, at int) {
	b = b[:binary.BigEndian.Uint32(b)]
	n := uint32(min(emptySectors(b, at), mostNoted))
	binary.BigEndian.PutUint32(b[12:], uint32(b[12])<<24|n<<12|n)
	binary.BigEndian.PutUint32(b[8:], checksum(b[12:]))
}

// record is a record found in a segment.
type record struct {
	index, term, batch, secret uint64
	size                       int
}

// parse() reads the record at the start of b, which holds the rest of the segment. The argument `at` is the
// offset of the record in the file.
func parse(b []byte, at int) (r record, err error) {
	if len(b) < recordSize || binary.BigEndian.Uint64(b) == 0 {
		return r, errEnd
	}
	size := int(binary.BigEndian.Uint32(b))
	if uint32(size) != ^binary.BigEndian.Uint32(b[4:]) || size < recordSize || size > maxRecord ||
		size > len(b) {
		// the disk wrote the size and its complement together in one sector, so a crash cannot tear them
		// apart
		return r, errDamaged
	}
	if checksum(b[12:size]) != binary.BigEndian.Uint32(b[8:]) {
		noted := int(binary.BigEndian.Uint32(b[12:]) & mostNoted)
		twice := int(binary.BigEndian.Uint32(b[12:]) >> 12 & mostNoted)
		if empty := emptySectors(b[:size], at); noted == twice && (empty > noted || empty == mostNoted) {
			return r, errTorn
		}
		return r, errDamaged
	}
	return record{index: binary.BigEndian.Uint64(b[16:]), term: binary.BigEndian.Uint64(b[24:]),
		batch: binary.BigEndian.Uint64(b[32:]), secret: binary.BigEndian.Uint64(b[40:]), size: size}, nil
}

// emptySectors returns how many of the sectors in b contain only zeros. If only a part of a sector is in b,
// that part decides.
func emptySectors(b []byte, at int) (empty int) {
	for len(b) > 0 {
		n := min(len(b), sector-at%sector)
		if len(bytes.Trim(b[:n], "\x00")) == 0 {
			empty++
		}
		b, at = b[n:], at+n
	}
	return empty
}

// decode() fills l from a whole record that parse() has accepted. It does not keep b. The time of the append
// is not on the disk, because only measurements in the running process use it.
func decode(b []byte, l *raft.Log) error {
	ext := binary.BigEndian.Uint64(b[48:])
	if ext > uint64(len(b)-recordSize) {
		return errDamaged
	}
	data := append([]byte(nil), b[recordSize:]...)
	*l = raft.Log{Type: raft.LogType(b[12]), Index: binary.BigEndian.Uint64(b[16:]),
		Term: binary.BigEndian.Uint64(b[24:])}
	cut := len(data) - int(ext)
	l.Data = data[:cut:cut]
	if ext > 0 {
		l.Extensions = data[cut:]
	}
	return nil
}
