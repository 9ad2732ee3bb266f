package client

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A session timeout leaves room for two heartbeats before the deadline, or is refused with one that does.
func TestShortTimeoutsAreRefused(t *testing.T) {
	for _, x := range []struct {
		asked, granted, margin time.Duration
		want                   string
	}{
		{20 * time.Second, 20 * time.Second, 0, ""}, {2 * time.Second, 2 * time.Second, 0, "ask for 1.8s or more"},
		{time.Second, time.Second, 0, "ask for 1.8s or more"},
		{2 * time.Second, 2 * time.Second, 100 * time.Millisecond, ""},
		{time.Hour, time.Second, 0,
			"a session timeout of 1s (granted by the server instead of 1h0m0s) is too short"},
		{time.Second, time.Second, 0,
			"a session timeout of 1s is too short: leases are given up 1s before it ends, " +
				"and two heartbeats need 400ms"},
		{10 * time.Second, 10 * time.Second, 9 * time.Second, "too short"},
	} {
		o := &session{timeout: x.asked, margin: x.margin}
		err := o.checkTimeout(x.granted)
		if x.granted >= 2*time.Second && x.margin == 0 {
			x.want = ""
		}
		if x.want == "" {
			expect.OK(t, err, "%v", x)
			continue
		}
		must.Is(t, err, ErrInvalid, "%v", x)
		expect.Has(t, err.Error(), x.want)
	}
}

// A grace of zero means a second, and a negative one no time.
func TestGraceOfALimit(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{0: recipe.DefaultGrace, -1: 0,
		time.Minute: time.Minute} {
		o := options{maxHold: time.Hour, grace: grace}
		expect.Equal(t, o.graceNow(), want)
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	must.That(t, earlier(early, late).Equal(early) && earlier(late, early).Equal(early), "the later time")
}
