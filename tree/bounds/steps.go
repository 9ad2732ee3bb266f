package bounds

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// MaxSteps is the budget of one request: the limit of its cost while the state is locked. A step takes about
// 75 ns, so the budget is 12 ms. Another 8 ms, which make 20 ms in all, are for work that only some servers
// have: events for watchers, and copies for a snapshot that is being written. A multi or multiRead of ten
// thousand operations on ordinary paths costs less. A request that costs more ends with BADARGUMENTS, which
// every client library knows, and changes nothing. Every server must count the same steps, whatever its
// release. So the counts are constants and depend only on the request and the tree. A change of a count after
// a release needs an option of the entry, which a leader sets once all members understand it.
//
// WideSteps is the budget of a write in a cluster that release 0.2.0 or a later release began. One multi can
// then create ten thousand nodes of a thousand bytes each; it holds the lock for 15 ms.
const (
	MaxSteps  = 160_000
	WideSteps = 200_000
	StepNanos = 75
	ReadBytes = 400 // how many bytes of an answer are copied in a step
)

// The costs of the parts of a request, in steps. BenchmarkSteps measures how long a step takes in multis of
// each operation, on paths of every depth and length. The costs belong to the format of the log: a server
// with other costs could apply an old entry differently.
const (
	OpSteps     = 2   // to read and look up an operation; a multi reads it twice and pays half a step more
	SetSteps    = 3   // new data, and the event
	CreateSteps = 9   // a new node, and two events
	DeleteSteps = 5   // a deleted node, and two events
	watchSteps  = 8   // a watch that is set or compared
	EndSteps    = 10  // an ephemeral node that is deleted at the end of its session
	ACLSteps    = 2   // an entry of an ACL that a client sends
	NewACLSteps = 4   // an entry of an ACL that no other node has
	QuotaSteps  = 6   // a write of the counts of a quota
	StepBytes   = 160 // how many bytes of data are stored in a step
	eventBytes  = 750 // how many bytes of paths are hashed in a step, to find the watches above a node
)

// DataSteps returns the cost of storing data. The cost is at most half the budget, because the operator may
// allow nodes so large that their data alone would use up the budget.
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
