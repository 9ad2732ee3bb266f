package raftfsm

import (
	"sync"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// logCache keeps the newest log entries in memory for followers, which are sent entries from the
// log: no more than cacheEntries and, as an entry may be as long as a request, no more than
// cacheBytes. An entry that alone is longer is not kept.
type logCache struct {
	raft.LogStore

	mu     sync.RWMutex
	newest []*raft.Log // contiguous, the oldest first
	bytes  int         // of their data
}

const (
	cacheEntries = 64
	cacheBytes   = 64 * state.BatchBytes
)

// IsMonotonic says of the wrapped store what disk.Log says of it.
func (c *logCache) IsMonotonic() bool { return true }

func (c *logCache) GetLog(index uint64, l *raft.Log) error {
	c.mu.RLock()
	if n := uint64(len(c.newest)); n > 0 && index-c.newest[0].Index < n { // or wraps round
		*l = *c.newest[index-c.newest[0].Index]
		c.mu.RUnlock()
		return nil
	}
	c.mu.RUnlock()
	return c.LogStore.GetLog(index, l)
}

func (c *logCache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

func (c *logCache) StoreLogs(logs []*raft.Log) error {
	if err := c.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if n := len(c.newest); n > 0 && c.newest[n-1].Index+1 != l.Index {
			c.drop(n)
		}
		c.newest = append(c.newest, l)
		c.bytes += len(l.Data)
		for len(c.newest) > cacheEntries || c.bytes > cacheBytes {
			c.drop(1)
		}
	}
	return nil
}

// drop removes the n oldest; the caller holds the lock.
func (c *logCache) drop(n int) {
	for i, l := range c.newest[:n] {
		c.bytes -= len(l.Data)
		c.newest[i] = nil
	}
	c.newest = c.newest[n:]
}

// DeleteRange forgets all entries before the store deletes any.
func (c *logCache) DeleteRange(from, to uint64) error {
	c.mu.Lock()
	c.drop(len(c.newest))
	c.mu.Unlock()
	return c.LogStore.DeleteRange(from, to)
}
