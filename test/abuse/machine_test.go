package abuse

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// slower() returns how many times longer a step of a request takes on this machine than on the machine of
// docs/limits.md. The result is at least 1 and at most 2: if a step takes even longer, the program is at
// fault. The tests multiply limits of time by the result. The step is measured in the same run as the
// attacks.
func slower(t *testing.T) float64 {
	const creates, name = 10_000, 10
	request := make([]byte, 0, creates*100)
	for i := range creates {
		request = jute.AppendMultiHeader(request, jute.OpCreate, false, -1)
		request = jute.AppendString(request, fmt.Sprintf("/%0*d", name, i))
		request = jute.AppendString(request, strings.Repeat("x", 20))
		request = jute.AppendACL(request, jute.WorldAnyone)
		request = jute.AppendInt(request, 0)
	}
	request = jute.AppendMultiHeader(request, jute.OpError, true, -1)
	step := math.Inf(1)
	for range 7 { // take the fastest try, in which no other program used the processor
		tr, c := tree.New(), &tree.Change{Zxid: 1, Session: 1}
		began := time.Now()
		tr.Apply(c, jute.OpMulti, request, nil)
		took := time.Since(began)
		expect.Equal(t, tr.Count(), creates+tree.New().Count(), "nodes after the creates that time a step")
		step = min(step, float64(took.Nanoseconds())/float64(c.Steps))
	}
	t.Logf("a step takes %.0f ns here, and %d on the machine of docs/limits.md", step, bounds.StepNanos)
	return min(max(step/bounds.StepNanos, 1), 2)
}
