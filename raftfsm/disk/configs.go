package disk

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// configs holds raft's configurations in the order of their indexes: those in the log, and those that came
// with snapshots. raft knows the newest configuration, but does not report its index. Because raft reads its
// whole log when it starts, configs sees every configuration in use.
type configs struct {
	mu   sync.Mutex
	list []config
}

// config is one configuration and the index of its entry.
type config struct {
	index   uint64
	servers []raft.Server
	gap     bool // the configuration came with a snapshot, so the configurations before it are not known
}

// add() records a configuration.
func (c *configs) add(now config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, is := slices.BinarySearchFunc(c.list, now.index, config.compare)
	if !is && now.index > 0 {
		c.list = slices.Insert(c.list, i, now)
	}
}

func (c config) compare(index uint64) int { return cmp.Compare(c.index, index) }

// addLogs records the configurations among log entries.
func (c *configs) addLogs(logs ...*raft.Log) {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			c.add(config{index: l.Index, servers: raft.DecodeConfiguration(l.Data).Servers})
		}
	}
}

// cut() drops the configurations in entries that raft has removed.
func (c *configs) cut(from uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.list, from, config.compare)
	c.list = c.list[:i]
}

// UnknownConfig is an index that no log entry has.
const UnknownConfig = math.MaxUint64

// ConfigOf returns the index of the newest configuration that has these servers. While an entry is on its way
// to the disk, the log has a configuration that raft does not use yet. So the newest index in the log may
// belong to a configuration with other servers.
func (d *Disk) ConfigOf(servers []raft.Server) uint64 {
	c := &d.configs
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, now := range slices.Backward(c.list) {
		if slices.Equal(now.servers, servers) {
			return now.index
		}
	}
	if len(c.list) == 0 && len(servers) == 0 {
		return 0
	}
	return UnknownConfig
}

// StaysMember reports whether a server is in every configuration after an entry and, if `addr` is not empty,
// has this address in each. If so, no other server has had its id since that entry.
func (d *Disk) StaysMember(after uint64, id raft.ServerID, addr raft.ServerAddress) bool {
	c := &d.configs
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, now := range slices.Backward(c.list) {
		if now.index <= after {
			return true
		}
		is := func(s raft.Server) bool { return s.ID == id && (addr == "" || s.Address == addr) }
		if now.gap || !slices.ContainsFunc(now.servers, is) {
			return false
		}
	}
	return true
}
