package peer

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
)

var shared [1 << 20]byte // content of all entries

func message(sizes ...int) *raft.AppendEntriesRequest {
	args := new(raft.AppendEntriesRequest)
	for i, n := range sizes {
		args.Entries = append(args.Entries, &raft.Log{Index: uint64(i + 1), Data: shared[:n]})
	}
	return args
}

func TestCutKeepsWhatFits(t *testing.T) {
	for _, c := range []struct {
		sizes       []int
		limit       int
		kept, bytes int
	}{{[]int{10, 10, 10}, 30, 3, 30}, {[]int{10, 10, 11}, 30, 2, 20}, {[]int{100, 1}, 30, 1, 100},
		{[]int{0, 0}, 30, 2, 0}, {nil, 30, 0, 0}} {
		args := message(c.sizes...)
		if n := cut(args, c.limit); n != c.bytes || len(args.Entries) != c.kept {
			t.Errorf("%v within %d: %d entries of %d bytes, want %d of %d", c.sizes, c.limit, len(args.Entries), n,
				c.kept, c.bytes)
		}
	}
}

// A link of 20 Mbit/s, or of one, is never sent more than it moves in rpcTimeout,
// once that was noticed, and a fast one gets full messages again.
func TestPaceFollowsTheLink(t *testing.T) {
	for _, rate := range []float64{20e6 / 8, 1e6 / 8} {
		var p pace
		failed, moved := 0, 0
		for range 200 {
			size := cut(message(entries(64, 1<<20)...), p.limit("2"))
			took := time.Duration(float64(size) / rate * float64(time.Second))
			var err error
			if took > rpcTimeout {
				took, err = rpcTimeout, errors.New("timeout")
				failed++
			} else {
				moved += size
			}
			p.note("2", size, took, err)
		}
		expect.That(t, failed <= 4 && moved >= 100<<20,
			"at %.0f bytes a second: %d messages failed, %d MiB went", rate, failed, moved>>20)
		for range 20 {
			p.note("2", p.limit("2"), time.Millisecond, nil)
		}
		if p.limit("2") != paceMost {
			t.Errorf("a fast link is sent %d bytes at once", p.limit("2"))
		}
	}
}

func entries(n, size int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = size
	}
	return list
}

// A server that was away for a while is sent full messages again, also if no
// entries fit exactly into the smallest ones, to which its absence has led.
func TestPaceRisesAfterAnOutage(t *testing.T) {
	for _, entry := range []int{3_000, 10_000, 40_000, 60_000} {
		var p pace
		for range 10 {
			p.note("2", cut(message(entries(64, entry)...), p.limit("2")), time.Millisecond,
				errors.New("connection refused"))
		}
		if p.limit("2") != paceLeast {
			t.Fatalf("after an outage it is sent %d bytes at once", p.limit("2"))
		}
		for range 20 {
			p.note("2", cut(message(entries(64, entry)...), p.limit("2")), time.Millisecond, nil)
		}
		if p.limit("2") != paceMost {
			t.Errorf("entries of %d bytes are sent %d bytes at once", entry, p.limit("2"))
		}
	}
}
