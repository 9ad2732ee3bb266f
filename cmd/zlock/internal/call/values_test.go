package call

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestDurationsThatAreTyped(t *testing.T) {
	for s, want := range map[string]time.Duration{"0": 0, "1.5": 1500 * time.Millisecond,
		"10s": 10 * time.Second, "1e9": 1e9 * time.Second} {
		d, err := ParseDuration(s)
		expect.OK(t, err)
		expect.Equal(t, d, want)
	}
	for _, s := range []string{"", "-1", "-1s", "2e9", "NaN", "Inf", "s", "2562047h"} {
		expect.Fails(t, expect.Err(ParseDuration(s)), "%q is a duration", s)
	}
}

func TestDurationsAreShownAsTheyAreTyped(t *testing.T) {
	for _, s := range []string{"20s", "10s", "30s", "1m", "10m", "1h", "10h", "1m30s", "1h0m10s", "100ms",
		"1m10s", "20m", "1h30m"} {
		d := must.Get(ParseDuration(s))(t)
		expect.Equal(t, DurationText(d), s, "is shown as")
	}
}
