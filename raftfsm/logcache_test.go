package raftfsm

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// counting is a log that counts how often it is read.
type counting struct {
	*raft.InmemStore
	reads int
}

func (c *counting) GetLog(i uint64, l *raft.Log) error {
	c.reads++
	return c.InmemStore.GetLog(i, l)
}

func TestLogCacheIsBoundedInEntriesAndBytes(t *testing.T) {
	below := &counting{InmemStore: raft.NewInmemStore()}
	c := &logCache{LogStore: below}
	last := uint64(0)
	store := func(n, size int) {
		t.Helper()
		for range n {
			last++
			must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 1, Data: make([]byte, size)}))
			sum := 0
			for _, l := range c.newest {
				sum += len(l.Data)
			}
			must.That(t, sum == c.bytes && sum <= cacheBytes && len(c.newest) <= cacheEntries,
				"%d entries of %d bytes, counted as %d", len(c.newest), sum, c.bytes)
		}
	}
	kept := func(want int) {
		t.Helper()
		below.reads = 0
		for i := uint64(1); i <= last; i++ {
			var l raft.Log
			if err := c.GetLog(i, &l); err != nil || l.Index != i {
				t.Fatalf("entry %d: %+v, %v", i, l.Index, err)
			}
		}
		expect.Equal(t, int(last)-below.reads, want, "entries are kept")
	}
	store(200, 10)
	kept(cacheEntries)
	store(30, cacheBytes/8)
	kept(8)
	store(1, cacheBytes+1) // longer than all of it
	kept(0)
	store(3, 1)
	kept(3)
	must.OK(t, c.DeleteRange(last, last))
	last--
	kept(0)
	last++
	must.OK(t, c.StoreLog(&raft.Log{Index: last, Term: 2}))
	var l raft.Log
	if err := c.GetLog(last, &l); err != nil || l.Term != 2 {
		t.Errorf("an entry that was replaced: %+v, %v", l, err)
	}
	// One behind a gap, as after a snapshot from the leader.
	last += 100
	if err := c.StoreLog(&raft.Log{Index: last, Term: 3}); err != nil || len(c.newest) != 1 {
		t.Errorf("%d kept behind a gap, %v", len(c.newest), err)
	}
}
