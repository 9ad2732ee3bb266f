//go:build stock

package stock

import (
	"net"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestRefereeSeesViolations keeps the judge honest.
func TestRefereeSeesViolations(t *testing.T) {
	type entry struct {
		mode  string
		limit int
	}
	for _, c := range []struct {
		name    string
		inside  []entry
		last    entry
		allowed bool
	}{
		{"two alone", []entry{{"x", 1}}, entry{"x", 1}, false},
		{"one alone", nil, entry{"x", 1}, true},
		{"readers share", []entry{{"r", 1}, {"r", 1}}, entry{"r", 1}, true},
		{"writer beside reader", []entry{{"r", 1}}, entry{"w", 1}, false},
		{"reader beside writer", []entry{{"w", 1}}, entry{"r", 1}, false},
		{"two writers", []entry{{"w", 1}}, entry{"w", 1}, false},
		{"third of three leases", []entry{{"s", 3}, {"s", 3}}, entry{"s", 3}, true},
		{"fourth of three leases", []entry{{"s", 3}, {"s", 3}, {"s", 3}}, entry{"s", 3}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &referee{keys: map[string]*critical{}}
			for _, e := range c.inside {
				a, b := net.Pipe()
				defer a.Close()
				defer b.Close()
				must.Equal(t, r.enter(a, "k", e.mode, e.limit), "ok")
			}
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			got := r.enter(a, "k", c.last.mode, c.last.limit)
			expect.That(t, (got == "ok") == c.allowed && len(r.violations) > 0 != c.allowed,
				"answer %q, violations %v", got, r.violations)
			expect.That(t, c.allowed || strings.HasPrefix(got, "violation: k "), "answer %q", got)
			r.gone(a)
			expect.Equal(t, len(r.keys["k"].inside), len(c.inside),
				"a connection that ended is still inside")
		})
	}
}
