package consensus

import (
	"slices"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/stream"
)

// logCache keeps the newest log entries in memory. The leader sends entries to followers from this cache.
// logCache omits entries longer than cacheLongest, because a single request may make an entry very long.
type logCache struct {
	*raft.LogCache
	below raft.LogStore
}

const (
	cacheEntries = 64
	cacheLongest = stream.BatchBytes + stream.BlockBytes // the longest entry of several requests
)

func newLogCache(below raft.LogStore) (logCache, error) {
	c, err := raft.NewLogCache(cacheEntries, below)
	return logCache{c, below}, err
}

// StoreLog implements raft.LogStore.
func (c logCache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (c logCache) StoreLogs(logs []*raft.Log) error {
	if slices.ContainsFunc(logs, func(l *raft.Log) bool { return len(l.Data) > cacheLongest }) {
		return c.below.StoreLogs(logs)
	}
	return c.LogCache.StoreLogs(logs)
}
