package locks_test

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
)

// FuzzNames: whatever nodes are called, every contender met is shown once.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"lock-0000000001", "x-1-0000000001", "<script>-0000000001",
		"lock\u202e0000000001", "h-" + z1 + "-W", "q-" + z1 + "-R--000000001", "\xff\xfe0000000009",
		"lock--1000000000", h1, "a~" + h1 + "-R-0000000001"} {
		f.Add(s, "lock-0000000002")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsAny(a+b, "/\x00") || a == b || a == "" || b == "" || a == "." || a == ".." || b == "." ||
			b == ".." {
			return
		}
		w := newForest(t)
		w.dirs("/l")
		w.lenient = true
		for i, n := range []string{a, b} {
			w.node(int64(i+1), "/l/"+n, "", 1, jute.WorldAnyone)
		}
		met := map[string]bool{}
		for _, q := range w.scan() {
			for _, c := range append(append(q.Holders, q.Waiters...), q.Participants...) {
				p := q.Target(c.Node)
				expect.That(t, !met[p], "%q is met twice", p)
				met[p] = true
				for _, on := range c.BlockedBy {
					expect.That(t, q.Find(on) != nil, "%q waits for %q, which is not there", c.Node, on)
				}
			}
		}
	})
}
