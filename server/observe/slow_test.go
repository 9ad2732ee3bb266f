package observe

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
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
	if text.Len() != 0 {
		t.Errorf("a quick one is logged: %s", text.String())
	}
	for range 15 {
		ask(1500*time.Millisecond, 200*time.Millisecond)
	}
	if n := strings.Count(text.String(), "slow request"); n != 10 || s.Seen.Load() != 15 || s.Skipped.Load() != 5 {
		t.Errorf("%d lines, %d slow, %d left out", n, s.Seen.Load(), s.Skipped.Load())
	}
	ask(2*time.Second, time.Second)
	last := text.String()[strings.LastIndex(text.String(), "level="):]
	const want = `msg="slow request" operation=sync path="" session=0x1f addr=10.0.0.1 took=1s waited=500ms carried_out=500ms`
	if !strings.Contains(last, want) {
		t.Errorf("%s\nnot %s", last, want)
	}
}
