package turns

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

func TestDelayLeft(t *testing.T) {
	const delay = 10 * time.Second
	for name, x := range map[string]struct {
		stamped, created int64
		since            time.Duration
		want             time.Duration
	}{
		"the holder died as the contender came": {5000, 5000, 0, delay},
		"the contender came later":              {5000, 8000, 0, 7 * time.Second},
		"the contender counts on":               {5000, 8000, 6 * time.Second, time.Second},
		"the holder died later":                 {8000, 5000, 3 * time.Second, delay},
		"the delay is over":                     {5000, 16000, 0, -time.Second},
		"the leader's clock went back":          {90_000, 5000, 0, delay},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, DelayLeft(delay, x.stamped, x.created, x.since), x.want)
		})
	}
}
