package client

import (
	"sync/atomic"

	"github.com/zlockd/zlockd/client/zk"
)

// Stats counts what a client has done since Dial.
type Stats struct {
	Sessions     uint64 // sessions had
	Attachments  uint64 // connections that carried a session
	Heartbeats   uint64 // heartbeats answered
	Requests     uint64 // requests sent, pings not counted
	Events       uint64 // watch events received
	BytesSent    uint64
	BytesRead    uint64
	Enqueued     uint64 // contenders that took a place in a queue
	Granted      uint64 // leases given, nested ones not counted
	Released     uint64 // locks released
	Lost         uint64 // locks lost
	Requeued     uint64 // contenders that had to take a new place
	Recovered    uint64 // creates whose lost reply was made up for
	ReaperQueue  uint64 // abandoned nodes still to be removed
	Reaped       uint64 // abandoned nodes removed
	Watches      uint64 // watches kept
	HooksDropped uint64
}

// counters are the parts of Stats that are counted as they happen.
type counters struct {
	wire                              zk.Counters
	sessions, heartbeats              atomic.Uint64
	enqueued, granted, released       atomic.Uint64
	lost, requeued, recovered, reaped atomic.Uint64
}

// Stats returns the client's counters.
func (c *Client) Stats() Stats {
	n := &c.count
	c.notifier.mu.Lock()
	dropped := c.notifier.dropped
	c.notifier.mu.Unlock()
	return Stats{
		Sessions: n.sessions.Load(), Attachments: n.wire.Connections.Load(), Heartbeats: n.heartbeats.Load(),
		Requests: n.wire.Requests.Load(), Events: n.wire.Events.Load(),
		BytesSent: n.wire.BytesSent.Load(), BytesRead: n.wire.BytesRead.Load(),
		Enqueued: n.enqueued.Load(), Granted: n.granted.Load(), Released: n.released.Load(),
		Lost: n.lost.Load(), Requeued: n.requeued.Load(), Recovered: n.recovered.Load(),
		ReaperQueue: uint64(c.reaper.left.add(0)), Reaped: n.reaped.Load(),
		Watches: uint64(c.session().Watches()), HooksDropped: dropped,
	}
}
