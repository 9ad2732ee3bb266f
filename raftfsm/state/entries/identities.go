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

// AppendWith appends the encoding of a request with these identities. request is its encoding without
// identities.
func AppendWith(b, request []byte, ids []jute.ID) []byte {
	const head = 16 // the size of the fields before the identities
	b = append(b, request[:head]...)
	b = appendIDs(b, ids)
	return append(b, request[head+4:]...)
}

// split cuts the first request of b into its parts; b must be well formed. identities are the encoded
// identities of the request, with their count.
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

// named reports whether an encoded list of identities has at least one.
func named(identities []byte) bool { return len(identities) > 4 }

// NameOnce returns an entry of KindBatch as one of kindNamed, if that is shorter. The entry must
// be well formed and not yet sealed.
func NameOnce(entry []byte) (_ []byte, shorter bool) {
	sets := map[string]int32{} // without identities NameOnce adds no set
	var list [][]byte
	saved := -4
	for rest := entry[HeaderSize:]; len(rest) > 0; {
		bl, next, err := NextBlock(rest)
		if err != nil {
			return entry, false
		}
		requests := bl.Requests
		for range bl.Count {
			var ids []byte
			if _, ids, _, requests = split(requests); !named(ids) {
				continue
			}
			if _, known := sets[string(ids)]; known {
				saved += len(ids) - 4
			} else {
				sets[string(ids)] = int32(len(list))
				list = append(list, ids)
				saved -= 4
			}
		}
		rest = next
	}
	if saved <= 0 {
		return entry, false
	}
	b := append(make([]byte, 0, len(entry)-saved), entry[:HeaderSize]...)
	b[1] += kindNamed - KindBatch
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, ids := range list {
		b = append(b, ids...)
	}
	for rest := entry[HeaderSize:]; len(rest) > 0; {
		bl, next, _ := NextBlock(rest)
		at := len(b)
		b = append(b, make([]byte, BlockHeaderSize)...)
		requests := bl.Requests
		for range bl.Count {
			var head, ids, body []byte
			head, ids, body, requests = split(requests)
			b = append(b, head...)
			if named(ids) {
				b = jute.AppendInt(b, -1-sets[string(ids)])
			} else {
				b = append(b, ids...)
			}
			b = append(b, body...)
		}
		bl.Requests = b[at+BlockHeaderSize:]
		bl.PutHeader(b[at:])
		rest = next
	}
	return b, true
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
