package entries

import (
	"encoding/binary"
	"fmt"

	"github.com/zlockd/zlockd/jute"
)

// A client's identities travel with each of its requests, and may be much longer than the request.
// An entry of kindNamed holds each set of them once, before its blocks, and requests refer to a
// set:
//
//	sets       := count u32 · identities*
//	identities := count i32 · (scheme · id)*
//
// In a request a negative count means set number −1 − count.

// appendIDs appends the encoding of identities.
func appendIDs(b []byte, ids []jute.ID) []byte {
	b = jute.AppendInt(b, int32(len(ids)))
	for i := range ids {
		b = jute.AppendString(b, ids[i].Scheme)
		b = jute.AppendString(b, ids[i].ID)
	}
	return b
}

// IdentitiesSize returns how many bytes these identities add to a request.
func IdentitiesSize(ids []jute.ID) (size int) {
	for i := range ids {
		size += 8 + len(ids[i].Scheme) + len(ids[i].ID)
	}
	return size
}

// AppendWith appends the encoding of a request with these identities. The argument `request` is the encoding
// of that request without identities.
func AppendWith(b, request []byte, ids []jute.ID) []byte {
	const head = 16 // the size of the fields before the identities
	b = append(b, request[:head]...)
	b = appendIDs(b, ids)
	return append(b, request[head+4:]...)
}

// split() cuts the first request of b into its parts; b must be well formed. `identities` is the encoding of
// the request's identities, with their count.
func split(b []byte) (head, identities, body, rest []byte) {
	head, b = b[:16], b[16:]
	n := 4
	for range 2 * max(0, int(int32(binary.BigEndian.Uint32(b)))) {
		n += 4 + max(0, int(int32(binary.BigEndian.Uint32(b[n:]))))
	}
	identities, b = b[:n], b[n:]
	n = 4 + max(0, int(int32(binary.BigEndian.Uint32(b))))
	return head, identities, b[:n], b[n:]
}

// Sets cuts the sets of identities, if there are any, off the front of an entry's blocks.
func Sets(entry []byte) (sets [][]jute.ID, blocks []byte, err error) {
	blocks = entry[HeaderSize:]
	if entry[1]&kindMask != kindNamed {
		return nil, blocks, nil
	}
	d := jute.NewDecoder(blocks)
	for range d.Count(4) {
		sets = append(sets, decodeIDs(&d, d.Count(8), nil))
	}
	if d.Err() != nil {
		return nil, nil, fmt.Errorf("%w: identities: %v", ErrCorrupt, d.Err())
	}
	return sets, d.Rest(), nil
}

// decodeIDs appends n identities to ids.
func decodeIDs(d *jute.Decoder, n int, ids []jute.ID) []jute.ID {
	for range n {
		scheme, _ := d.String()
		id, _ := d.String()
		if d.Err() != nil {
			break
		}
		ids = append(ids, jute.ID{Scheme: scheme, ID: id})
	}
	return ids
}
