package client

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/fence"
)

// EventKind says what an [Event] tells.
type EventKind uint8

const (
	// EventState: the session has a new state, To instead of From.
	EventState EventKind = iota + 1
	// EventQueued: a contender has its place in the queue.
	EventQueued
	// EventWaiting: a contender has looked at its queue and must wait, or is refused as a try. Place, Of
	// and Holder say where it stands.
	EventWaiting
	// EventGranted: a lock was granted. Waited is the time since the call.
	EventGranted
	// EventRequeued: a waiter lost its place and takes a new one. Err says why.
	EventRequeued
	// EventLost: a lease was lost. Err is the *LostError.
	EventLost
	// EventReleased: a lock is given back, before another contender can have it. Held is how long it was
	// held.
	EventReleased
	// EventLeftBehind: Pending nodes are left behind by calls: those that are still to remove, and those
	// whose creation or release is under way, as after [Lease.Release].
	EventLeftBehind
	// EventPermits: a semaphore stores another number of permits than this program named, and the stored
	// one counts: Permits instead of Wanted. Each Semaphore tells it once.
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

// Event tells what happened to the session or to one contender; see [WithEvents]. Fields that its kind
// does not name are set as far as they are known.
type Event struct {
	Kind EventKind

	// Of a contender.
	Path   string
	Node   string
	Mode   fence.Mode
	Token  fence.Token // 0 for a set of several locks
	Waited time.Duration
	Held   time.Duration
	Err    error

	Place, Of int    // its place among all contenders, the holders included; 0 if it is not known
	Holder    string // the node of the first holder; "" if it is not known

	Permits, Wanted int // of a semaphore: the stored number, and the program's

	From, To State  // of the session
	Pending  int    // nodes left behind
	Dropped  uint64 // how many events the client has dropped so far, because the function was too slow
}

// maxEvents is how many events wait for the function.
const maxEvents = 4096

// notifier tells events in their order, from one goroutine.
type notifier struct {
	calls   chan notice
	dropped atomic.Uint64
}

// notice is an event and the function that hears of it.
type notice struct {
	to func(Event)
	ev Event
}

// add appends an event for each function that is not nil; it never blocks.
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

// run tells the events until stop is closed, and then those that are left.
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

// tell passes an event of a lock to the functions of the client and of the lock.
func (c *Client) tell(path string, cfg *options, ev Event) {
	ev.Path = path
	c.notifier.add(ev, c.events, cfg.events)
}
