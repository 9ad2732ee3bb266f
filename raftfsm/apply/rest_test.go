package apply

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// The writer of a snapshot leaves the state lock to requests for half of the time. After each millisecond of
// reading it rests without the lock for as long as it has read, but at most 50 ms at a time.
func TestWriterOfASnapshotRestsAsLongAsItReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ read, rest time.Duration }{
		{readRest / 2, 0},
		{readRest - 1, 0},
		{readRest, readRest},
		{20 * readRest, 20 * readRest},
		{time.Minute, 50 * readRest}, // the process stood still for a minute, but the rest has a limit
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &snapshot{f: &FSM{}}
			for round := range 3 {
				began := time.Now()
				free := make(chan bool, 1)
				go func() {
					time.Sleep(c.read + c.rest/2)
					got := s.f.mu.TryLock()
					if got {
						s.f.mu.Unlock()
					}
					free <- got
				}()
				s.read(func() { time.Sleep(c.read) })
				expect.Equal(t, time.Since(began)-c.read, c.rest, "rest after %v, round %d", c.read, round)
				got := <-free
				expect.That(t, got || c.rest == 0, "the lock is held during the rest after %v", c.read)
				s.reading = 0
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // reads of less than a millisecond add up
		s := &snapshot{f: &FSM{}}
		began := time.Now()
		for range 30 {
			s.read(func() { time.Sleep(readRest / 3) })
		}
		whole := time.Since(began)
		most := 2 * 10 * readRest
		expect.That(t, whole >= most*99/100-readRest && whole <= most,
			"30 short reads took %v, want %v to %v", whole, most*99/100-readRest, most)
	})
}
