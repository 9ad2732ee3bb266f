package observe

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/test/expect"
)

// TestSlowRequestsAreLogged: with operation, session and address, ten in a second, and the others
// counted.
func TestSlowRequestsAreLogged(t *testing.T) {
	var text strings.Builder
	s := &Slow{Bound: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}
	ask := func(at, took time.Duration) {
		s.Request(&Request{Op: jute.OpSync, Session: 0x1f, Addr: "10.0.0.1", Arrived: at - took, Begun: at - took/2,
			Answered: at})
	}
	ask(time.Second, 99*time.Millisecond)
	expect.Equal(t, text.Len(), 0, "a quick one is logged: %s", text.String())
	for range 15 {
		ask(1500*time.Millisecond, 200*time.Millisecond)
	}
	if n := strings.Count(text.String(), "slow request"); n != 10 || s.seen.Load() != 15 || s.skipped.Load() != 5 {
		t.Errorf("%d lines, %d slow, %d left out", n, s.seen.Load(), s.skipped.Load())
	}
	ask(2*time.Second, time.Second)
	last := text.String()[strings.LastIndex(text.String(), "level="):]
	const want = `msg="slow request" operation=sync path="" session=0x1f addr=10.0.0.1 took=1s waited=500ms carried_out=500ms`
	if !strings.Contains(last, want) {
		t.Errorf("%s\nnot %s", last, want)
	}
}

// TestSlowWriteTellsItsStages: in the line, and as histograms of all requests.
func TestSlowWriteTellsItsStages(t *testing.T) {
	var text strings.Builder
	s := &Slow{Bound: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}
	s.Request(&Request{Op: jute.OpSetData, Arrived: 1, Begun: 2, Logged: 3, Answered: 4})
	s.Request(&Request{Op: jute.OpSetData, Arrived: time.Second, Begun: 1100 * time.Millisecond,
		Logged: 1900 * time.Millisecond, Answered: 1950 * time.Millisecond})
	const want = "took=950ms waited=100ms logged=800ms applied=50ms code"
	if !strings.Contains(text.String(), want) {
		t.Errorf("%s\nnot %s", text.String(), want)
	}
	var status admin.Status
	s.Status(&status)
	got := map[string]*admin.Histogram{}
	for _, x := range status.Extra {
		if x.Histogram != nil {
			got[x.Labels[0].Value] = x.Histogram
		}
	}
	for stage, want := range map[string]admin.Histogram{
		"waited":  {Count: 2, Sum: 0.100000001, Buckets: map[float64]uint64{0.0001: 1, 0.05: 1, 0.1: 2, 5: 2}},
		"logged":  {Count: 2, Sum: 0.800000001, Buckets: map[float64]uint64{0.0001: 1, 0.5: 1, 1: 2}},
		"applied": {Count: 2, Sum: 0.050000001, Buckets: map[float64]uint64{0.0001: 1, 0.01: 1, 0.05: 2}},
	} {
		h := got[stage]
		if h == nil || h.Count != want.Count || h.Sum != want.Sum {
			t.Errorf("%s: %+v, not %+v", stage, h, want)
			continue
		}
		for bound, n := range want.Buckets {
			expect.Equal(t, h.Buckets[bound], n, "%s up to %g s", stage, bound)
		}
	}
	if h := got["carried_out"]; h == nil || h.Count != 0 {
		t.Errorf("without the log: %+v", h)
	}
}
