package members

import (
	"fmt"
	"time"
)

// rate measures how fast a count has risen during the last seconds.
type rate struct {
	at    time.Time
	count int64
	per   float64 // units of the count in a second
}

// of() returns the rate as text. The argument `left` says how much is still to come. If it is not 0, the text
// also says how long that will take.
func (r *rate) of(count, left int64, unit func(int64) string) string {
	now := time.Now()
	if r.at.IsZero() || count < r.count {
		*r = rate{at: now, count: count}
		return ""
	}
	if d := now.Sub(r.at); d >= time.Second {
		r.per = float64(count-r.count) / d.Seconds()
		r.at, r.count = now, count
	}
	if r.per < 1 {
		return ""
	}
	text := fmt.Sprintf(" (%s/s", unit(int64(r.per)))
	if left > 0 {
		text += ", " + (time.Duration(float64(left)/r.per) * time.Second).String() + " to go"
	}
	return text + ")"
}

// byteCount formats a number of bytes for people.
func byteCount(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
