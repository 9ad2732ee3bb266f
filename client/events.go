package client

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
)

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	// EventState: the state of the session has changed from the value of `From` to the value of `To`.
	EventState EventKind = iota + 1
	// EventQueued: a contender has its place in the queue.
	EventQueued
	// EventWaiting: a contender has looked at its queue and must wait. A contender that may not wait is refused
	// instead. Place, Of and Holder give the contender's place.
	EventWaiting
	// EventGranted: a lock was granted. Waited is the time since the call.
	EventGranted
	// EventRequeued: a waiter lost its place and takes a new one. Err says why.
	EventRequeued
	// EventLost: a lease was lost. Err is the *LostError.
	EventLost
	// EventReleased: a holder gives its lock back. The client reports this event before another contender can
	// get the lock. Held is how long the lock was held.
	EventReleased
	// EventLeftBehind: calls have left nodes behind, and Pending counts them. These are nodes that must still
	// be removed, and nodes whose creation or release is under way, for example after [Lease.Release].
	EventLeftBehind
	// EventPermits: the number of permits stored in the semaphore (Permits) differs from the program's number
	// (Wanted). The stored number is the valid one. Each Semaphore reports this once.
	EventPermits
)

var eventNames = [...]string{EventState: "state", EventQueued: "queued", EventWaiting: "waiting",
	EventGranted: "granted", EventRequeued: "requeued", EventLost: "lost", EventReleased: "released",
	EventLeftBehind: "left behind", EventPermits: "permits"}

// String returns the kind in a word or two.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return "event " + strconv.Itoa(int(k))
}

// Event describes what happened to the session or to one contender; see [WithEvents]. The comment of each
// kind names its fields. Every other field is set only if its value is known.
type Event struct {
	Kind EventKind

	// The fields below describe a contender.
	Path   string
	Node   string
	Mode   fence.Mode
	Token  fence.Token // 0 for a set of several locks
	Waited time.Duration
	Held   time.Duration
	Err    error

	Place, Of int    // place of the contender among all contenders, holders included; 0 if not known
	Holder    string // the node of the first holder; empty if it is not known

	Permits, Wanted int // of a semaphore: the stored number of permits, and the program's number

	From, To State  // states of the session before and after the change
	Pending  int    // how many nodes are left behind
	Dropped  uint64 // how many events the client has dropped so far: the event function was too slow
}

// maxEvents bounds how many events wait to be delivered.
const maxEvents = 4096

// notifier delivers events in their order, from one goroutine.
type notifier struct {
	calls   chan notice
	dropped atomic.Uint64
}

// notice is an event and the function that receives it.
type notice struct {
	to func(Event)
	ev Event
}

// add() appends an event for each function that is not nil; it never blocks.
func (n *notifier) add(ev Event, to ...func(Event)) {
	ev.Dropped = n.dropped.Load()
	for _, f := range to {
		if f == nil {
			continue
		}
		select {
		case n.calls <- notice{f, ev}:
		default:
			n.dropped.Add(1)
		}
	}
}

// run() delivers events until `stop` is closed, and then delivers the events that are left.
func (n *notifier) run(stop <-chan struct{}) {
	for {
		select {
		case c := <-n.calls:
			c.to(c.ev)
			continue
		case <-stop:
		}
		select {
		case c := <-n.calls:
			c.to(c.ev)
		default:
			return
		}
	}
}

// kinds gives the EventKind of this package for each event kind of package hold.
var kinds = [...]EventKind{
	hold.EventQueued: EventQueued, hold.EventWaiting: EventWaiting, hold.EventGranted: EventGranted,
	hold.EventRequeued: EventRequeued, hold.EventLost: EventLost, hold.EventReleased: EventReleased,
	hold.EventPermits: EventPermits,
}

// teller returns the function that passes the events of a lock to the functions of the client and of the
// lock. It returns nil if there is no such function.
func (c *Client) teller(path string, cfg *options) func(hold.Event) {
	if c.events == nil && cfg.events == nil {
		return nil
	}
	return func(ev hold.Event) {
		c.notifier.add(Event{Kind: kinds[ev.Kind], Path: path, Node: ev.Node, Mode: ev.Mode, Token: ev.Token,
			Waited: ev.Waited, Held: ev.Held, Err: ev.Err, Place: ev.Place, Of: ev.Of, Holder: ev.Holder,
			Permits: ev.Permits, Wanted: ev.Wanted}, c.events, cfg.events)
	}
}
