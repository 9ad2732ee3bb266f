package entries

import (
	"encoding/binary"
	"fmt"

	"github.com/zlockd/zlockd/jute"
)

// Request is one request as a server proposes it. It carries everything that Apply needs: Apply
// asks no clock, no configuration and no connection.
type Request struct {
	Session int64
	Gen     uint32 // attach generation of the asking connection
	Op      jute.OpCode
	IDs     []jute.ID // identities; nil: only the session's address
	Body    []byte    // the client's own bytes, which the server copies when it proposes the request
}

// Append appends r's encoding, which shares no memory with r.
func (r *Request) Append(b []byte) []byte {
	b = jute.AppendLong(b, r.Session)
	b = binary.BigEndian.AppendUint32(b, r.Gen)
	b = jute.AppendInt(b, int32(r.Op))
	b = appendIDs(b, r.IDs)
	return jute.AppendBuffer(b, r.Body)
}

// Decode reads the first request of b into r, which then points into b. If the request refers to a set of
// identities, r.IDs is that set. Otherwise Decode appends the request's identities to `ids`. It returns
// `ids`, so that the caller can use that memory again.
func Decode(b []byte, sets [][]jute.ID, r *Request, ids []jute.ID) (rest []byte, _ []jute.ID,
	err error) {
	d := jute.NewDecoder(b)
	r.Session = d.Long()
	r.Gen = uint32(d.Int())
	r.Op = jute.OpCode(d.Int())
	if n := d.Int(); n >= 0 {
		if int(n) > len(b)/8 {
			return nil, ids, fmt.Errorf("%w: %d identities", ErrCorrupt, n)
		}
		ids = decodeIDs(&d, int(n), ids)
		r.IDs = ids
	} else if set := -1 - int(n); set < len(sets) {
		r.IDs = sets[set]
	} else {
		return nil, ids, fmt.Errorf("%w: set %d of %d", ErrCorrupt, set, len(sets))
	}
	r.Body = d.Buffer()
	if err := d.Err(); err != nil {
		return nil, ids, fmt.Errorf("%w: request: %v", ErrCorrupt, err)
	}
	return d.Rest(), ids, nil
}

// PeekRequest returns the session of the first request of b, and the bytes after that request. b
// must be well formed.
func PeekRequest(b []byte) (session int64, rest []byte) {
	head, _, _, rest := split(b)
	return int64(binary.BigEndian.Uint64(head)), rest
}

// Check reports a request that is too long for a log entry.
func (r *Request) Check() error {
	if size := r.size(); size > MaxRequest {
		return fmt.Errorf("a request of %d bytes is too long: a log entry takes at most %d", size, MaxRequest)
	}
	return nil
}

// size is the length of r's encoding.
func (r *Request) size() int { return requestMinSize + len(r.Body) + IdentitiesSize(r.IDs) }
