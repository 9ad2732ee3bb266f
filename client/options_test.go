package client

import (
	"testing"
	"time"
)

// A holder stops before the server may give its lock away, however much the two
// clocks differ within what was said.
func TestClockDriftAndMarginShortenALease(t *testing.T) {
	const timeout = 10 * time.Second
	for _, test := range []struct {
		opts []Option
		want time.Duration
	}{
		{nil, 9950*time.Millisecond - 2*time.Second},
		{[]Option{WithClockDrift(0)}, timeout - 2*time.Second},
		{[]Option{WithClockDrift(0.1)}, 9*time.Second - 2*time.Second},
		{[]Option{WithClockDrift(0.1), WithMargin(3 * time.Second)}, 6 * time.Second},
		{[]Option{WithClockDrift(0), WithMargin(time.Millisecond)}, timeout - time.Millisecond},
	} {
		o := defaultOptions()
		for _, f := range test.opts {
			f(&o)
		}
		if err := o.withDefaults(); err != nil {
			t.Fatal(err)
		}
		if got := o.usable(timeout); got != test.want {
			t.Errorf("%d options: a lease of %v, want %v", len(test.opts), got, test.want)
		}
	}
	short := defaultOptions()
	if got := short.usable(4 * time.Second); got != 3980*time.Millisecond-minMargin {
		t.Errorf("a margin of a fifth is too little for a short session: %v", got)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, opt := range map[string]Option{
		"no timeout": WithSessionTimeout(0), "negative margin": WithMargin(-1), "negative drift": WithClockDrift(-0.1), "half a drift": WithClockDrift(0.5),
	} {
		o := defaultOptions()
		opt(&o)
		if err := o.withDefaults(); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
