package view_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// metric() returns the value of a series, and whether it is there.
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
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v, there = r.metric(series); there && ok(v) {
			return
		}
	}
	r.Errorf("%s stays %v (there: %v)", series, v, there)
}

// TestLockMetrics: each metric changes with the events that it counts.
func TestLockMetrics(t *testing.T) {
	r := newRig(t)
	is := func(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
	some := func(v float64) bool { return v > 0 }
	// Grants are counted from one look to the next, so the first look comes before the locks.
	r.metric("zlockd_lock_suspected_deadlocks")
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

// TestLabelsAreBounded: clients choose paths, and must not choose how many series there are.
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

var figures = flag.Bool("figures", false, "measure what docs/lock-view.md tells")

// crowd() makes `nlocks` locks. Each of them has `each` contenders.
func (r *rig) crowd(root string, nlocks, each int) {
	r.Helper()
	const conns = 4
	var wg sync.WaitGroup
	for n := range conns {
		c := r.session()
		_, err := c.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		must.That(r, err == nil || err == zk.ErrNodeExists, "%v", err)
		wg.Go(func() {
			for l := n; l < nlocks; l += conns {
				dir := fmt.Sprintf("%s/l%05d", root, l)
				ops := []any{&zk.CreateRequest{Path: dir, Acl: zk.WorldACL(zk.PermAll)}}
				for i := range each {
					ops = append(ops, &zk.CreateRequest{Path: dir + "/lock-",
						Data:  []byte(`{"v":1,"host":"web-12","pid":4711,"reason":"nightly"}`),
						Flags: zk.FlagEphemeral | zk.FlagSequence, Acl: zk.WorldACL(zk.PermAll)})
					if len(ops) == 500 || i == each-1 {
						if _, err := c.Multi(ops...); err != nil {
							r.Error(err)
							return
						}
						ops = ops[:0]
					}
				}
			}
		})
	}
	wg.Wait()
}

// cold() measures the first answer after a change, again and again.
func (r *rig) cold(c *zk.Conn, path string) (median, worst time.Duration, bytes int) {
	r.Helper()
	var all []time.Duration
	for range 5 {
		must.Get(c.Set("/touch", nil, -1))(r)
		time.Sleep(2 * time.Second) // until the last scan is too old to be used
		begun := time.Now()
		a, b := r.request("GET", path, map[string]string{"Accept-Encoding": "gzip"}, "")
		all = append(all, time.Since(begun))
		must.Equal(r, a.StatusCode, http.StatusOK, "%s: %s", path, a.Status)
		bytes = len(b)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1], bytes
}

func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("measures for minutes; run with -figures")
	}
	for _, size := range []struct{ locks, each int }{{10_000, 3}, {10_000, 10}, {1, 100_000}} {
		r := newRig(t)
		c := r.session()
		r.node(c, "/touch", "", 0)
		r.crowd("/crowd", size.locks, size.each)
		for _, path := range []string{"/?tab=locks", "/locks", "/wait-graph", "/locks/crowd/l00000"} {
			median, worst, n := r.cold(c, path)
			t.Logf("%d locks of %d: %-20s median %v, worst %v, %d bytes zipped", size.locks, size.each, path,
				median.Round(100*time.Microsecond), worst.Round(100*time.Microsecond), n)
		}
	}
}

// The type three is one of three servers; one of the others is down.
type three struct {
	*still
	asked chan struct{} // gets a value with each question; while it is full, the question is not answered
}

func (s *three) Status(report.Need) *report.Status {
	st := s.still.Status(0)
	st.ID, st.Leader = 1, 1
	for id := uint32(1); id <= 3; id++ {
		st.Members = append(st.Members, status.Member{ID: id, Peer: "10.0.0.1:2888", Voter: true})
	}
	return st
}

func (s *three) Members(ctx context.Context) (*status.Members, error) {
	select {
	case s.asked <- struct{}{}:
		return &status.Members{Members: map[uint32]status.Member{
			1: {Progress: status.Progress{Heard: status.Ago(0)}}, 2: {Progress: status.Progress{Heard: status.Ago(0),
				Lag: 7}},
			3: {Progress: status.Progress{Lag: 99, Waits: "connection refused"}},
		}}, nil
	case <-ctx.Done():
		return new(status.Members), ctx.Err()
	}
}

// TestAMemberThatIsGoneIsNoFollower: the overview says which member is not reached, and why.
func TestAMemberThatIsGoneIsNoFollower(t *testing.T) {
	s := &three{&still{st: state.New("three")}, make(chan struct{}, 1)}
	v := view.New(view.Options{Source: s})
	defer v.Close()
	pages := v.Pages()
	ask := func(path string) string {
		w := httptest.NewRecorder()
		pages[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
		return w.Body.String()
	}
	var o struct {
		Members []struct {
			Reached *bool
			Lag     uint64
			Waits   string
		}
	}
	must.OK(t, json.Unmarshal([]byte(ask("/overview")), &o))
	m := o.Members
	if expect.Equal(t, len(m), 3, "length of %v", m) {
		expect.That(t, *m[0].Reached, "%+v", m)
		expect.That(t, *m[1].Reached, "%+v", m)
		expect.Equal(t, m[1].Lag, 7, "lag")
		expect.That(t, !*m[2].Reached, "%+v", m)
		expect.Equal(t, m[2].Lag, 0, "lag")
		expect.Equal(t, m[2].Waits, "connection refused", "waits")
	}
	page := ask("/{$}")
	for _, want := range []string{"<td>leader</td><td>caught up</td>",
		"<td>follower</td><td>7 entries behind</td>",
		`<td>voter</td><td><strong class="bad">not reached</strong>: connection refused</td>`,
		"Server 3 is not reached (connection refused), and one more loss stops the cluster: start it"} {
		expect.Has(t, page, want, "the page lacks")
	}
}

// The type hangs is one of three servers. Another of them hangs: its connections stay open, but it sends
// nothing.
type hangs struct{ *three }

func (hangs) Members(context.Context) (*status.Members, error) {
	return &status.Members{Members: map[uint32]status.Member{
		1: {Progress: status.Progress{Heard: status.Ago(0)}},
		2: {Progress: status.Progress{Heard: status.Ago(90)}},
		3: {Progress: status.Progress{Heard: status.Ago(60_000), Waits: "no answer"}},
	}}, nil
}

// A member from which nothing was heard for a minute is shown as not reached.
func TestAMemberThatHangsIsNotReached(t *testing.T) {
	v := view.New(view.Options{Source: hangs{&three{&still{st: state.New("three")}, nil}}})
	defer v.Close()
	w := httptest.NewRecorder()
	v.Pages()["/{$}"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
	expect.Has(t, w.Body.String(), "Server 3 is not reached (no answer), and one more loss stops the cluster")
	expect.Has(t, w.Body.String(), "<td>follower</td><td>caught up</td>", "what the page says of server 2")
}

// If members answer too late, the page does not wait for them, and shows their progress as not known.
func TestMembersThatAnswerLateHoldNobodyUp(t *testing.T) {
	s := &three{&still{st: state.New("three")}, make(chan struct{})}
	v := view.New(view.Options{Source: s})
	defer v.Close()
	w := httptest.NewRecorder()
	v.Pages()["/{$}"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil))
	expect.Equal(t, strings.Count(w.Body.String(), "<td>not known</td>"), 3, "of 3 members")
}

func (s *three) GoneClients() map[string]observe.Count { return nil }
