package hold

import (
	"time"

	"github.com/zlockd/zlockd/client/fence"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// The events of a contender and of its hold; package client documents them.
const (
	EventQueued EventKind = iota + 1
	EventWaiting
	EventGranted
	EventRequeued
	EventLost
	EventReleased
	EventPermits
)

// Event is something that happened to a contender or to its hold. Package client documents the fields.
type Event struct {
	Kind   EventKind
	Node   string
	Mode   fence.Mode
	Token  fence.Token
	Waited time.Duration
	Held   time.Duration
	Err    error

	Place, Of       int
	Holder          string
	Permits, Wanted int
}
