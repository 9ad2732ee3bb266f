package outbox

import (
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The outbox that was touched first is written first, even while other outboxes are touched again and again.
func TestNobodyWaitsForAFlusherBehindThoseWhoCameLater(t *testing.T) {
	var f Flushers
	conns := make([]*Outbox, 50)
	for i := range conns {
		conns[i] = new(Outbox)
	}
	visited := 0
	visit := func() {
		for _, c := range f.next(nil) {
			must.That(t, c == conns[visited], "visit %d is to number %d", visited, slices.Index(conns, c))
			visited++
		}
	}
	for i := range conns {
		f.touch(conns[i])
		if i%3 == 2 {
			f.Kick()
			visit()
		}
	}
	f.Kick()
	for f.waiting() > 0 {
		visit()
	}
	expect.Equal(t, visited, len(conns), "of %d visited", len(conns))
}
