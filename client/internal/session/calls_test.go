package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/must"
)

// A call is repeated, after a pause that grows, while its outcome is unknown. It is not repeated once it has
// certainly succeeded or failed.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := []error{ErrAgain, zk.ErrUncertain, zk.ErrConnectionLost, ErrAgain,
			fmt.Errorf("%w", ErrAgain)}
		for _, last := range []error{nil, zk.ErrNoNode} {
			n, began := 0, time.Now()
			err := Again(t.Context(), func() error {
				if n++; n <= len(outcomes) {
					return outcomes[n-1]
				}
				return last
			})
			must.That(t, errors.Is(err, last) && n == len(outcomes)+1, "%v after %d", err, n)
			took := time.Since(began)
			must.That(t, took >= 3*time.Millisecond*3/4 && took <= 3*time.Millisecond*5/4, "after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		err := Again(ctx, func() error { n++; return zk.ErrUncertain })
		must.Is(t, err, context.DeadlineExceeded)
		must.That(t, n > 50 && n < 100, "%d tries in a minute", n)
		began := time.Now()
		must.OK(t, Pause(t.Context(), time.Second))
		must.Equal(t, time.Since(began), time.Second)
		for n, want := range map[int]time.Duration{1: 50, 2: 100, 5: 800, 6: 1000, 15: 1000, 16: 1000,
			math.MaxInt: 1000} {
			d := Backoff(n, 50*time.Millisecond, time.Second)
			want *= time.Millisecond
			must.That(t, d >= want*3/4 && d <= want*5/4, "%v before try %d", d, n)
		}
	})
}
