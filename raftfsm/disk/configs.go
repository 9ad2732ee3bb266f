package disk

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// configs are the indexes of the log entries with raft's configurations, in
// order; raft knows the newest and does not tell it. raft reads its log when it
// starts, so all that count pass by.
type configs struct {
	mu      sync.Mutex
	indexes []uint64
}

// add notes a configuration.
func (c *configs) add(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, is := slices.BinarySearch(c.indexes, index); !is && index > 0 {
		c.indexes = slices.Insert(c.indexes, i, index)
	}
}

// addLogs notes those among log entries.
func (c *configs) addLogs(logs ...*raft.Log) {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			c.add(l.Index)
		}
	}
}

// cut forgets those of entries that were taken back.
func (c *configs) cut(from uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearch(c.indexes, from)
	c.indexes = c.indexes[:i]
}

// Config is the index of the log entry with the newest configuration; 0: there
// is none.
func (d *Disk) Config() uint64 {
	c := &d.configs
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.indexes) == 0 {
		return 0
	}
	return c.indexes[len(c.indexes)-1]
}
