package client

import (
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/zk"
)

// Hooks are functions that the client calls on events. Each may be nil. One goroutine of the client
// calls them one after another, so a slow one delays the others but never a lock. When more than
// 4096 events wait, the client drops new ones and counts them in [Stats.HooksDropped].
type Hooks struct {
	// OnState is called when the session has a new state.
	OnState func(old, new State)
	// OnEnqueue is called when a contender has its place in the queue.
	OnEnqueue func(LockEvent)
	// OnWait is called when a contender has looked at its queue and must wait, or is refused as a try:
	// Place, Of and Holder say where it stands.
	OnWait func(LockEvent)
	// OnGrant is called when a lock was granted; Waited is the time since the call.
	OnGrant func(LockEvent)
	// OnRequeue is called when a waiter lost its place and takes a new one; Err says why.
	OnRequeue func(LockEvent)
	// OnLost is called when a lease was lost; Err is the *LostError.
	OnLost func(LockEvent)
	// OnRelease is called when a lock is given back, before another contender can have it; Held is how
	// long it was held.
	OnRelease func(LockEvent)
	// OnReaper is called with the number of nodes that calls have left behind: those that are still to
	// remove, and those whose creation or release is under way, as after an early unlock.
	OnReaper func(pending int)
}

// LockEvent describes what happened to one contender.
type LockEvent struct {
	Path   string
	Node   string
	Mode   fence.Mode
	Token  fence.Token
	Waited time.Duration
	Held   time.Duration
	Err    error

	Place, Of int    // its place among all contenders, the holders included; 0 if it is not known
	Holder    string // the node of the first holder; "" if it is not known
}

const maxHookCalls = 4096

// notifier calls hooks in order, from one goroutine.
type notifier struct {
	calls   chan func()
	dropped atomic.Uint64
}

// add appends a call; it never blocks.
func (n *notifier) add(f func()) {
	select {
	case n.calls <- f:
	default:
		n.dropped.Add(1)
	}
}

// run makes the added calls until stop is closed, and then those that are left.
func (n *notifier) run(stop <-chan struct{}) {
	for {
		select {
		case f := <-n.calls:
			f()
			continue
		case <-stop:
		}
		select {
		case f := <-n.calls:
			f()
		default:
			return
		}
	}
}

// tell passes an event to hooks: those of the client, and of the lock. Each may be nil.
func (c *Client) tell(ev LockEvent, hooks ...func(LockEvent)) {
	for _, f := range hooks {
		if f != nil {
			c.notifier.add(func() { f(ev) })
		}
	}
}

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
	return Stats{
		Attachments: n.wire.Connections.Load(), Heartbeats: n.heartbeats.Load(),
		Requests: n.wire.Requests.Load(), Events: n.wire.Events.Load(),
		BytesSent: n.wire.BytesSent.Load(), BytesRead: n.wire.BytesRead.Load(),
		Recovered: n.recovered.Load(), Watches: uint64(c.session().Watches()),
		HooksDropped: c.notifier.dropped.Load(),
	}
}
