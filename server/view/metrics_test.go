package view_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// metric returns the value of a series, and whether it is there.
func (r *rig) metric(series string) (float64, bool) {
	r.Helper()
	_, b := r.request("GET", "/metrics", nil, "")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && name+"}" == series {
			f, err := strconv.ParseFloat(value, 64)
			return f, err == nil
		}
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == series {
			f, err := strconv.ParseFloat(value, 64)
			return f, err == nil
		}
	}
	return 0, false
}

func (r *rig) becomes(series string, ok func(float64) bool) {
	r.Helper()
	var v float64
	var there bool
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v, there = r.metric(series); there && ok(v) {
			return
		}
	}
	r.Errorf("%s stays %v (there: %v)", series, v, there)
}

// TestLockMetrics: each metric moves by what it counts.
func TestLockMetrics(t *testing.T) {
	r := newRig(t)
	is := func(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
	some := func(v float64) bool { return v > 0 }
	r.metric("zlockd_lock_suspected_deadlocks") // the first look counts no grants
	a, b := r.session(), r.session()
	mine := r.lock(a, "/app/x")
	r.lock(b, "/app/x")
	r.lock(b, "/app/y")
	r.becomes(`zlockd_locks_held{prefix="/app"}`, is(2))
	r.becomes(`zlockd_lock_waiters{prefix="/app"}`, is(1))
	r.becomes(`zlockd_lock_oldest_wait_seconds{prefix="/app"}`, some)
	r.becomes(`zlockd_lock_longest_hold_seconds{prefix="/app"}`, some)
	r.becomes(`zlockd_lock_grants_total{prefix="/app"}`, is(2))
	r.becomes("zlockd_lock_suspected_deadlocks", is(0))
	last := r.lock(a, "/app/y")
	r.becomes("zlockd_lock_suspected_deadlocks", is(1))
	must.OK(t, a.Delete(last, -1))
	_, _, gone, err := b.GetW(mine)
	must.OK(t, err)
	must.OK(t, a.Delete(mine, -1))
	<-gone
	if _, _, err := b.Children("/app/x"); err != nil {
		t.Fatal(err)
	}
	r.becomes(`zlockd_lock_grants_total{prefix="/app"}`, func(v float64) bool { return v >= 3 })
	r.becomes("zlockd_lock_scan_seconds", some)
}

// TestLabelsAreBounded: clients choose paths, and must not choose how many
// series there are.
func TestLabelsAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.session()
	for i := range 50 {
		r.lock(c, fmt.Sprintf("/p%02d/l", i))
	}
	r.lock(c, "/"+strings.Repeat("long", 100)+"/l")
	r.eventually("/locks", func(o object) bool { return o["total"] == 51.0 })
	_, b := r.request("GET", "/metrics", nil, "")
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "zlockd_locks_held{") {
			n++
		}
	}
	expect.That(t, n == 33 || n == 32, "%d prefixes", n)
	r.becomes(`zlockd_locks_held{prefix="other"}`, func(v float64) bool { return v >= 19 })
}
