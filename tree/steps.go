package tree

import "strings"

// MaxSteps is the budget of one request: the most it may cost while the state is locked. A step is
// about 80 ns, so the budget is 20 ms. A multi or multiRead of ordinary paths that fills a frame
// of 1 MB costs less. A request that costs more ends with BADARGUMENTS, which every client library
// knows, and changes nothing. Every server must count alike, so the counts are constants and
// follow from the request and the tree alone.
const MaxSteps = 250_000

// What a request pays for. The figures come from a multi of each operation that
// fills a frame, on short paths, on paths of 1,023 names and on paths of 64 KiB.
const (
	opSteps     = 2   // one operation, read and looked up
	setSteps    = 3   // new data, and the event
	createSteps = 7   // a new node, and two events
	deleteSteps = 3   // a node less, and two events
	endSteps    = 10  // a node that goes with its session
	aclSteps    = 2   // an entry of an ACL that a client sends
	stepBytes   = 400 // of data or of an answer that are copied in a step
	eventBytes  = 750 // hashed in a step where an event looks for watches above its node
)

// spend counts n steps. It returns false when the budget is used up, for this and all later calls.
func (c *Change) spend(n int) bool {
	if c.Steps+n > MaxSteps {
		c.Steps = MaxSteps
		return false
	}
	c.Steps += n
	return true
}

// pathSteps returns the cost of checking a path and walking along it.
func pathSteps(path string) int {
	return min(strings.Count(path, "/"), MaxDepth)/4 + len(path)/64
}

// eventSteps returns the cost of an event on a path whose every name may have a Recursive watch:
// every prefix of the path is hashed.
func eventSteps(path string) int {
	return len(path) * strings.Count(path, "/") / 2 / eventBytes
}
