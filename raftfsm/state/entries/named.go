package entries

import (
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// NameOnce turns an entry of kind KindBatch into an entry of kind kindNamed, if that is shorter. The entry
// must be well formed and not yet sealed.
func NameOnce(entry []byte) (_ []byte, shorter bool) {
	sets := map[string]int32{} // number of each set, by its encoding; a request without identities needs no set
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

// named() reports whether an encoded list of identities is not empty.
func named(identities []byte) bool { return len(identities) > 4 }
