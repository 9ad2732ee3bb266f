package client

import (
	"sync/atomic"

	"github.com/zlockd/zlockd/client/zk"
)

// Stats counts what a client has done since Dial, as far as [Hooks] do not tell.
type Stats struct {
	Attachments  uint64 // connections that carried a session
	Heartbeats   uint64 // heartbeats answered
	Requests     uint64 // requests sent, pings not counted
	Events       uint64 // watch events received
	BytesSent    uint64
	BytesRead    uint64
	Recovered    uint64 // creates whose lost reply was made up for
	Watches      uint64 // watches kept
	HooksDropped uint64
}

// counters are the parts of Stats that are counted as they happen.
type counters struct {
	wire                  zk.Counters
	heartbeats, recovered atomic.Uint64
}

// Stats returns the client's counters.
func (c *Client) Stats() Stats {
	n := &c.count
	c.notifier.mu.Lock()
	dropped := c.notifier.dropped
	c.notifier.mu.Unlock()
	return Stats{
		Attachments: n.wire.Connections.Load(), Heartbeats: n.heartbeats.Load(),
		Requests: n.wire.Requests.Load(), Events: n.wire.Events.Load(),
		BytesSent: n.wire.BytesSent.Load(), BytesRead: n.wire.BytesRead.Load(),
		Recovered: n.recovered.Load(), Watches: uint64(c.session().Watches()), HooksDropped: dropped,
	}
}
