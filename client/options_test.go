package client

import (
	"testing"
	"time"
)

// A holder stops before the server may give its lock away, although their clocks differ in
// speed.
func TestMarginShortensALease(t *testing.T) {
	const timeout = 10 * time.Second
	for _, test := range []struct {
		opts []Option
		want time.Duration
	}{
		{nil, 9950*time.Millisecond - 2*time.Second},
		{[]Option{WithMargin(3 * time.Second)}, 6950 * time.Millisecond},
		{[]Option{WithMargin(time.Millisecond)}, 9949 * time.Millisecond},
	} {
		o, err := clientOptions(test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.usable(timeout); got != test.want {
			t.Errorf("%d options: a lease of %v, want %v", len(test.opts), got, test.want)
		}
	}
	short := must[options](t)(clientOptions(nil))
	if got := short.usable(4 * time.Second); got != 3980*time.Millisecond-minMargin {
		t.Errorf("a margin of a fifth is too little for a short session: %v", got)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, opt := range map[string]Option{
		"no timeout": WithSessionTimeout(0), "negative margin": WithMargin(-1),
	} {
		if _, err := clientOptions([]Option{opt}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
