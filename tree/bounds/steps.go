package bounds

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// MaxSteps is the budget of one request: the most it may cost while the state is locked. A step is
// about 75 ns, so the budget is 12 ms; the rest of 20 ms is for what only some servers have to do:
// events for watchers, and copies for a snapshot that is being written. A multi or multiRead of ten
// thousand operations on ordinary paths costs less. A request that costs more ends with
// BADARGUMENTS, which every client library knows, and changes nothing. Every server must count
// alike, so the counts are constants and follow from the request and the tree alone. Servers of two
// releases do as well: to change a count after a release takes an option of the entry, which a
// leader sets once all members understand it.
//
// WideSteps is the budget of a write in a cluster that release 0.2.0 or a later one began: ten thousand
// creates of a thousand bytes each are one multi, and hold the lock for 15 ms.
const (
	MaxSteps  = 160_000
	WideSteps = 200_000
	StepNanos = 75
	ReadBytes = 400 // how many bytes of an answer are copied in a step
)

// What a request pays for. BenchmarkSteps measures multis of each operation, on paths of
// every depth and length, and how long a step of each takes. The figures belong to the format of the
// log: a server that counts otherwise would apply an old entry otherwise.
const (
	OpSteps     = 2   // one operation, read and looked up; in a multi half a step more, for the first reading
	SetSteps    = 3   // new data, and the event
	CreateSteps = 9   // a new node, and two events
	DeleteSteps = 5   // a node less, and two events
	watchSteps  = 8   // a watch that is set or compared
	EndSteps    = 10  // a node that goes with its session
	ACLSteps    = 2   // an entry of an ACL that a client sends
	NewACLSteps = 4   // an entry of an ACL that no other node has
	QuotaSteps  = 6   // a write of the counts of a quota
	StepBytes   = 160 // how many bytes of data are stored in a step
	eventBytes  = 750 // hashed in a step where an event looks for watches above its node
)

// DataSteps returns the cost of storing data. One node may be as large as the operator's bound of a
// frame allows: its data alone do not use up the budget.
func DataSteps(n int) int { return min(n/StepBytes, MaxSteps/2) }

// PathSteps returns the cost of checking a path and walking along it.
func PathSteps(path string) int {
	return min(strings.Count(path, "/"), MaxDepth)/4 + len(path)/64
}

// ReadSteps returns what a read costs in addition to its answer. WatchSteps returns what a watch costs.
func ReadSteps(path string, ids []jute.ID) int { return OpSteps + PathSteps(path) + len(ids)/2 }

func WatchSteps(path string) int { return watchSteps + len(path)/64 }

// EventSteps returns the cost of an event with this path. A Recursive watch may be at every prefix of the
// path, so each prefix is hashed.
func EventSteps(path string) int {
	return len(path)/64 + len(path)*strings.Count(path, "/")/2/eventBytes
}
