package client

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A grace of zero means a second, and a negative one no time.
func TestGraceOfALimit(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]time.Duration{0: recipe.DefaultGrace, -1: 0,
		time.Minute: time.Minute} {
		o := options{maxHold: time.Hour, grace: grace}
		expect.Equal(t, o.graceNow(), want)
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	must.Equal(t, earlier(early, late), early, "the earlier comes first")
	must.Equal(t, earlier(late, early), early, "the later comes first")
}
