package tickets

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// A key may have 10 events at once, and 10 in each second, however many events other keys have.
func TestPacesOfEachKey(t *testing.T) {
	p, begun := paces{}, time.Unix(1, 0)
	next := func(key string, n int, after time.Duration) time.Duration {
		return p.next(key, 10, n, begun.Add(after), time.Hour)
	}
	none := p.next("a", 0, 1, begun, time.Minute)
	expect.That(t, none > time.Minute, "a key that may have no event has one after %v", none)
	expect.Equal(t, next("a", 10, 0), 0, "the first of as many as may be")
	expect.Equal(t, next("b", 1, time.Second/2), 0, "of another key")
	expect.Equal(t, next("a", 5, time.Second/2), 0, "the first of those that the time since allows")
	expect.Equal(t, next("a", 1, time.Second/2), time.Second/10)
	expect.Equal(t, p.next("a", 10, 1, begun.Add(time.Second/2), 0), time.Second/5, "where none may wait")
	expect.Equal(t, next("a", 1, time.Second/2), time.Second/5, "after one that was not counted")
	for i := range MaxTickets + 5 {
		next(fmt.Sprint(i), 20, time.Minute)
	}
	expect.That(t, len(p) <= MaxTickets, "%d keys are kept", len(p))
}
