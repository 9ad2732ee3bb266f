package tree

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestDirAgainstSlice makes random changes to a directory that grows large and
// shrinks again, and compares it with a plain slice that does the same.
func TestDirAgainstSlice(t *testing.T) {
	seed := maphash.MakeSeed()
	r := rand.New(rand.NewPCG(1, 2))
	d := &dir{}
	var plain []*node
	largest := 0
	for i := range 60_000 {
		grow := 3 * (1 + i/20_000%2) // of 8: shrink, grow, shrink
		switch {
		case r.IntN(8) < grow || len(plain) == 0:
			n := &node{name: fmt.Sprint("node-", i)}
			plain = append(plain, n)
			d.add(seed, n)
		case r.IntN(2) == 0: // removed and put back: a failed multi
			p := r.IntN(len(plain))
			n := plain[p]
			d.remove(seed, p)
			must.That(t, d.find(seed, n.name) < 0, "still there")
			d.restore(seed, n, p)
		default:
			p := r.IntN(len(plain))
			last := len(plain) - 1
			plain[p] = plain[last]
			plain = plain[:last]
			d.remove(seed, p)
		}
		must.That(t, len(d.nodes) == len(plain) && d.find(seed, "nobody") < 0,
			"%v %v", len(d.nodes), len(plain))
		if len(plain) > 0 {
			p := r.IntN(len(plain))
			must.That(t, d.nodes[p] == plain[p] && d.find(seed, plain[p].name) == p,
				"step %d: child %d of %d is not where it should be", i, p, len(plain))
		}
		largest = max(largest, len(plain))
	}
	expect.That(t, largest >= 1000, "the directory never grew: %v", largest)
	for len(d.nodes) > 0 {
		d.remove(seed, len(d.nodes)-1)
	}
	if d.names != 0 || d.slots != nil || cap(d.nodes) > 64 {
		t.Errorf("an empty directory keeps %d bytes of names, %d slots and room for %d", d.names, len(d.slots),
			cap(d.nodes))
	}
}
