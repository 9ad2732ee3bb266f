package observe

import (
	"testing"
	"unsafe"

	"github.com/zlockd/zlockd/test/expect"
)

// `recent` keeps a copy of a name, so the name stays the same when the caller uses its buffer for something
// else.
func TestKnownNameKeepsItsBytes(t *testing.T) {
	var r recent
	buf := []byte("/app/lock")
	for range 2 {
		r.Add(unsafe.String(&buf[0], len(buf)), Count{Requests: 1}, 0)
	}
	copy(buf, "p4ssw0rd!")
	counts := r.Counts(0)
	expect.Equal(t, counts["/app/lock"].Requests, 2, "counts %v", counts)
}
