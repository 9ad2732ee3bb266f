package sim

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"time"
)

// Trace is a sum over all events of a run, in their order: the messages, the operations of the disks, and the
// records of the clients. Two runs are equal if their sums are equal. A nil trace sums up nothing.
type Trace struct {
	mu  sync.Mutex
	sum uint64
	n   int
	log []byte // nil: no log is kept
}

// runtimeNow returns the state of the runtime in an exact run, as a list of numbers.
var runtimeNow = func() []uint64 { return nil }

// newTrace returns an empty trace. If it keeps a log, each event becomes a line of the log, with the state of
// the runtime. A comparison of two logs shows where two runs begin to differ.
func newTrace(keep bool) *Trace {
	t := &Trace{sum: 14695981039346656037}
	if keep {
		t.log = make([]byte, 0, 128<<20)
	}
	return t
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// add() adds an event to the sum.
func (t *Trace) add(kind, from, to string, data []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := crc32.Checksum(data, castagnoli)
	at := time.Now().UnixNano()
	for _, s := range []string{kind, from, to} {
		for i := range len(s) {
			t.mix(uint64(s[i]))
		}
	}
	t.mix(uint64(len(data)))
	t.mix(uint64(sum))
	t.mix(uint64(at))
	t.n++
	if t.log != nil {
		b := strconv.AppendInt(t.log, at, 10)
		b = append(append(append(append(append(b, ' '), kind...), ' '), from...), ' ')
		b = strconv.AppendInt(append(append(b, to...), ' '), int64(len(data)), 10)
		b = strconv.AppendUint(append(b, ' '), uint64(sum), 16)
		for _, x := range runtimeNow() {
			b = strconv.AppendUint(append(b, ' '), x, 16)
		}
		t.log = append(b, '\n')
	}
}

func (t *Trace) mix(x uint64) { t.sum = (t.sum ^ x) * 1099511628211 }

// String returns the sum and the number of events.
func (t *Trace) String() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%016x-%d", t.sum, t.n)
}
