package observe

import (
	"bytes"
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// WithoutData copies a request's body for the logs, without the data of nodes: no log shows these, and a
// second copy of them, while the request waits, would be memory that no account has counted.
func WithoutData(op jute.OpCode, body []byte) []byte {
	switch op {
	case jute.OpMulti:
		return partsWithoutData(body)
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpSetData:
	default:
		return bytes.Clone(body)
	}
	path := after(body, 0)
	end := after(body, path)
	if path < 0 || end < 0 {
		return bytes.Clone(body)
	}
	kept := make([]byte, 0, len(body)-(end-path)+4)
	kept = jute.AppendBuffer(append(kept, body[:path]...), []byte{})
	return append(kept, body[end:]...)
}

// partsWithoutData copies a multi without the data of its operations. From an operation that it cannot read,
// it copies the rest as it is, so that the copy can be read no further than the request.
func partsWithoutData(body []byte) (kept []byte) {
	var r jute.CreateRequest
	from := 0
	for d := jute.NewDecoder(body); ; {
		h := d.MultiHeader()
		path := after(body, d.Offset())
		switch h.Type {
		case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
			d.ReadCreate(h.Type, &r)
		case jute.OpSetData:
			d.SetDataRequest()
		case jute.OpDelete, jute.OpCheck:
			d.PathVersion()
			path = -1
		default: // the end of the multi, or an operation that does not belong in one
			return append(kept, body[from:]...)
		}
		if h.Done || d.Err() != nil {
			return append(kept, body[from:]...)
		}
		if path >= 0 {
			kept = jute.AppendBuffer(append(kept, body[from:path]...), []byte{})
			from = after(body, path)
		}
	}
}

// after() returns where a text ends that begins at the offset `at` of a body. It returns -1 if the text does
// not fit in the body.
func after(body []byte, at int) int {
	if at < 0 || len(body)-at < 4 {
		return -1
	}
	n := int(int32(binary.BigEndian.Uint32(body[at:])))
	if n == -1 { // stands for null, which has no bytes
		n = 0
	}
	if n < 0 || n > len(body)-at-4 {
		return -1
	}
	return at + 4 + n
}
