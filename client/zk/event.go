package zk

import "github.com/zlockd/zlockd/jute"

// EventType says what happened to a watched node.
type EventType int32

// A server sends the events with positive numbers. The Conn adds the events with negative numbers.
const (
	EventCreated         = EventType(jute.EventCreated)
	EventDeleted         = EventType(jute.EventDeleted)
	EventDataChanged     = EventType(jute.EventDataChanged)
	EventChildrenChanged = EventType(jute.EventChildrenChanged)

	// EventLost: the server no longer has the watch. The node may have changed, so the program must read it
	// again.
	EventLost EventType = -1
	// EventOver: the session is over.
	EventOver EventType = -2
	// EventResumed tells a [Subscription] that the session has another connection. Events between the two
	// connections are missing.
	EventResumed EventType = -3
)

// String returns the event in a few words.
func (e EventType) String() string {
	switch e {
	case EventLost:
		return "watch lost"
	case EventOver:
		return "session over"
	case EventResumed:
		return "connection resumed"
	}
	return jute.EventType(e).String()
}

// Event is a change of a node.
type Event struct {
	Type EventType
	Path string
}

type watchKind uint8

const (
	noWatch       watchKind = iota
	watchData               // set by Get and Exists
	watchChildren           // set by Children
)

type watchKey struct {
	path string // the path from the server's root
	kind watchKind
}

// Watch reports the next change of a node. It keeps the event for a caller that looks late. All callers that
// watch the same node in the same way share one Watch until it fires. So a Watch that its caller has
// abandoned costs nothing: the next caller uses it.
//
// A Watch outlives connections. On the next connection of the session the Conn sets the watch again, or fires
// it if the node has changed since.
type Watch struct {
	key     watchKey
	missing bool // the node did not exist, so after a reconnect the watch is set again for its creation
	fired   chan struct{}
	event   Event
}

// Fired returns a channel that closes when there is an event.
func (w *Watch) Fired() <-chan struct{} { return w.fired }

// Event returns the event once Fired is closed, and the zero Event before.
func (w *Watch) Event() Event {
	select {
	case <-w.fired:
		return w.event
	default:
		return Event{}
	}
}
