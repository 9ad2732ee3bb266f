package seglog

import (
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/simdisk"
)

// The disk is full for a while, at every place of a segment in turn, and the log needs no room in
// that time: it takes all entries, before, during and after it.
func TestDiskThatWasFullForAWhileEndsNothing(t *testing.T) {
	const segment, size = 16 << 10, 500
	for from := uint64(2); from < 24; from++ {
		d := simdisk.New(rand.New(rand.NewPCG(1, from)))
		fs := d.Mount()
		must.OK(t, fs.MkdirAll("/log"))
		l := must.Get(Open("/log", Options{FS: fs, FirstSize: segment, FullSize: segment, InTurn: true}))(t)
		put := func(index uint64, what string) {
			t.Helper()
			must.OK(t, l.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, size)}),
				"full from entry %d on: entry %d, %s", from, index, what)
		}
		index := uint64(1)
		for ; index < from; index++ {
			put(index, "before")
		}
		d.Limit(d.Used() + size) // less than a segment
		for ; index < from+4; index++ {
			put(index, "while it is full")
		}
		d.Limit(1 << 40)
		for ; index < 200; index++ {
			put(index, "with room again")
		}
		must.OK(t, l.Close())
	}
}
