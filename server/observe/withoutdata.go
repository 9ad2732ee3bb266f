package observe

import (
	"bytes"
	"encoding/binary"

	"github.com/zlockd/zlockd/jute"
)

// WithoutData copies a request's body for the logs. It leaves out the data of nodes, because logs do not show
// them. While a write waits, a second copy of its data would take memory that no client's account counts.
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

// partsWithoutData copies a multi without the data in its operations. If an operation cannot be read, the
// rest of the body is kept unchanged. So the copy is refused in the same way as the request.
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
		default: // the end, or an operation that no multi may have
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

// after() returns the offset of the end of a text in a body. The text begins at the offset `at`. The result
// is -1 if the body is too short, or if the length of the text is impossible.
func after(body []byte, at int) int {
	if at < 0 || len(body)-at < 4 {
		return -1
	}
	n := int(int32(binary.BigEndian.Uint32(body[at:])))
	if n == -1 { // no text
		n = 0
	}
	if n < 0 || n > len(body)-at-4 {
		return -1
	}
	return at + 4 + n
}
