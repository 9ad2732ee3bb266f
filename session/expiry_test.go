package session

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const ms = time.Millisecond

func due(e *Expiry, now time.Duration) []int64 { return e.Due(now, 1<<30, nil) }

func TestSilentSessionIsDueAfterItsTimeoutNotBefore(t *testing.T) {
	for _, heard := range []time.Duration{0, 1, 19 * ms, 20*ms - 1, 20 * ms, 123456789} {
		e := NewExpiry()
		e.Touch(1, 4000*ms, heard)
		expect.Equal(t, len(due(e, heard+4000*ms-1)), 0, "heard at %v: due early", heard)
		expect.List(t, due(e, heard+4000*ms+resolution), []int64{1}, "heard at %v", heard)
	}
}

func TestTouchPutsTheDeadlineOff(t *testing.T) {
	e := NewExpiry()
	e.Touch(1, 1000*ms, 0)
	e.Touch(2, 1000*ms, 0)
	e.Touch(1, 1000*ms, 900*ms)
	expect.List(t, due(e, 1500*ms), []int64{2}, "due")
	e.Remove(2)
	expect.List(t, due(e, 1900*ms), []int64{1}, "due")
}

func TestLateTouchDoesNotShorten(t *testing.T) {
	e := NewExpiry()
	e.Touch(1, 1000*ms, 800*ms)
	e.Touch(1, 1000*ms, 500*ms)
	expect.Equal(t, len(due(e, 1799*ms)), 0, "a touch that arrived out of order took time away")
}

func TestShorterTimeoutCounts(t *testing.T) {
	e := NewExpiry()
	e.Touch(1, 30*time.Second, 0)
	must.Equal(t, len(due(e, time.Second)), 0, "due early")
	e.Touch(1, 4*time.Second, time.Second)
	got := due(e, 5*time.Second)
	expect.List(t, got, []int64{1}, "due %v after re-attaching with a shorter timeout", got)
}

func TestTouchLongPastIsDueAtOnce(t *testing.T) {
	e := NewExpiry()
	e.Touch(2, time.Second, 1000*time.Second)
	due(e, 1000*time.Second)
	e.Touch(1, time.Second, 0)
	expect.List(t, due(e, 1000*time.Second), []int64{1}, "due")
}

func TestDueIsBounded(t *testing.T) {
	e := NewExpiry()
	for id := range int64(2500) {
		e.Touch(id+1, time.Second, time.Duration(id)*10*time.Microsecond)
	}
	seen := map[int64]bool{}
	for _, want := range []int{1000, 1000, 500, 0} {
		got := e.Due(2*time.Second, 1000, nil)
		must.Equal(t, len(got), want, "due at once")
		for _, id := range got {
			must.That(t, !seen[id], "%d returned twice", id)
			seen[id] = true
		}
	}
}

func TestLostExpiryComesUpAgain(t *testing.T) {
	e := NewExpiry()
	e.Touch(1, time.Second, 0)
	must.Equal(t, len(due(e, 5*time.Second)), 1,
		"must be due once per timeout: len(due(e, 5*time.Second))")
	must.Equal(t, len(due(e, 5999*ms)), 0,
		"must be due once per timeout: len(due(e, 5999*ms))")
	got := due(e, 6020*ms)
	expect.List(t, got, []int64{1}, "due %v: an expiry that was never applied is forgotten", got)
}

// deadlineOf returns the time at which a session is due.
func deadlineOf(e *Expiry, id int64) (when time.Duration, known bool) {
	e.All(func(has int64, _, at time.Duration) {
		if has == id {
			when, known = at, true
		}
	})
	return when, known
}

func TestDeadlineIsTheFirstTickAtWhichDueReturnsIt(t *testing.T) {
	e := NewExpiry()
	e.Touch(1, time.Second, 1)
	at, ok := deadlineOf(e, 1)
	want := time.Second + resolution
	expect.That(t, ok, "deadline %v %v, want %v", at, ok, want)
	expect.Equal(t, at, want, "deadline")
	early, then := due(e, at-1), due(e, at)
	expect.Equal(t, len(early), 0, "due before it: length of %v", early)
	expect.Equal(t, len(then), 1, "due before it: length of %v", then)
	if _, ok := deadlineOf(e, 2); ok {
		t.Error("an unknown session has a deadline")
	}
}

// TestExpiryAgainstModel makes random touches and jumps of the clock. A session is due neither early nor more
// than a slot late.
func TestExpiryAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		e, model := NewExpiry(), map[int64]time.Duration{} // the model: each session's deadline
		timeouts := map[int64]time.Duration{}
		now := time.Duration(rnd.Int64N(int64(time.Hour)))
		for range 5000 {
			id := rnd.Int64N(30) + 1
			switch rnd.IntN(10) {
			case 0:
				e.Remove(id)
				delete(model, id)
				delete(timeouts, id)
			case 1, 2, 3, 4:
				timeout := time.Duration(rnd.Int64N(int64(60*time.Second))) + 1
				heard := now - time.Duration(rnd.Int64N(int64(100*ms)))
				e.Touch(id, timeout, heard)
				// A late touch does not take time from a session: a new timeout counts from the last time at which the
				// session was heard from.
				before, known := model[id]
				if model[id] = heard + timeout; known {
					model[id] = max(model[id], before-timeouts[id]+timeout)
				}
				timeouts[id] = timeout
			default:
				now += time.Duration(rnd.Int64N(int64(time.Second)))
				if rnd.IntN(50) == 0 {
					now += time.Duration(rnd.Int64N(int64(200 * time.Second)))
				}
				got := e.Due(now, 1+rnd.IntN(40), nil)
				for _, id := range got {
					if dl, ok := model[id]; !ok || now < dl {
						t.Fatalf("%d due at %v, deadline %v", id, now, dl)
					}
					model[id] = now + timeouts[id]
				}
				for _, id := range due(e, now) { // the sessions for which the first call had no room
					if dl, ok := model[id]; !ok || now < dl {
						t.Fatalf("%d due at %v, deadline %v", id, now, dl)
					}
					model[id] = now + timeouts[id]
				}
				for id, dl := range model {
					must.That(t, now < dl+resolution, "%d not due at %v, deadline %v", id, now, dl)
				}
			}
			must.Equal(t, e.Len(), len(model), "Len %d", e.Len())
		}
	}
}

func BenchmarkTouch(b *testing.B) {
	const n = 10000
	e := NewExpiry()
	now := time.Duration(0)
	for i := 0; b.Loop(); i++ {
		e.Touch(int64(i%n), 10*time.Second, now)
		now += 10 * time.Microsecond
		if i%2000 == 0 {
			e.Due(now, 1000, nil)
		}
	}
}

// A caller that sleeps until Next misses no deadline.
func TestNextIsNoLaterThanAnyDeadline(t *testing.T) {
	const limit = 250 * time.Millisecond
	e := NewExpiry()
	at := e.Next(limit)
	expect.Equal(t, at, limit, "without a session Due comes at %v", at)
	e.Touch(1, 130*time.Millisecond, 0)
	e.Touch(2, time.Hour, 0)
	due := e.Due
	at = e.Next(limit)
	expect.Equal(t, at, 140*time.Millisecond, "a deadline of 130 ms")
	expect.Equal(t, len(due(at-1, 9, nil)), 0, "a deadline of 130 ms: number of due")
	got := due(140*time.Millisecond, 9, nil)
	if expect.Equal(t, len(got), 1, "at 140 ms %v is due, want session 1: len(got)", got) {
		expect.Equal(t, got[0], 1, "at 140 ms %v is due, want session 1: got[0]", got)
	}
	e.Remove(1)
	at = e.Next(2 * limit)
	expect.Equal(t, at, 2*limit, "with an hour left Due comes at %v", at)
}

// Heard moves the deadline of a known session to a later time, never to an earlier one, and keeps its
// timeout.
func TestHeardPutsTheDeadlineOff(t *testing.T) {
	e := NewExpiry()
	e.Heard(1, 0)
	expect.Equal(t, e.Len(), 0, "a session that is not known")
	e.Touch(1, time.Second, 0)
	for _, x := range []struct{ heard, at time.Duration }{
		{500 * ms, 1500 * ms}, {100 * ms, 1500 * ms}, {501 * ms, 1520 * ms},
	} {
		e.Heard(1, x.heard)
		at, _ := deadlineOf(e, 1)
		expect.Equal(t, at, x.at, "heard at %v", x.heard)
	}
	expect.Equal(t, len(due(e, 1519*ms)), 0, "due early")
	expect.List(t, due(e, 1520*ms), []int64{1})
}

// All calls its function with each session and the session's timeout, which is at least one nanosecond.
func TestAllTellsOfEachSession(t *testing.T) {
	e := NewExpiry()
	want := map[int64]time.Duration{1: time.Second, 2: 3 * time.Second, 3: 1}
	for id, timeout := range want {
		e.Touch(id, timeout, 0)
	}
	e.Touch(3, 0, 0)
	got := map[int64]time.Duration{}
	e.All(func(id int64, timeout, _ time.Duration) { got[id] = timeout })
	expect.That(t, maps.Equal(got, want), "%v", got)
}

// A session may have been heard from before the clock began.
func TestTimesBeforeTheClockBegan(t *testing.T) {
	for _, x := range []struct{ heard, at time.Duration }{
		{-10 * time.Second, -9 * time.Second}, {-10*time.Second + 1, -9*time.Second + 20*ms},
		{-10*time.Second - 1, -9 * time.Second}, {-time.Second, 0}, {-time.Second - 1, 0}, {-time.Second + 1, 20 * ms},
	} {
		e := NewExpiry()
		e.Touch(1, time.Second, x.heard)
		at, _ := deadlineOf(e, 1)
		expect.Equal(t, at, x.at, "heard at %v", x.heard)
		expect.Equal(t, len(due(e, x.at-1)), 0, "heard at %v: due early", x.heard)
		expect.List(t, due(e, x.at), []int64{1}, "heard at %v", x.heard)
	}
}

// Next returns the first deadline within a turn of the wheel.
func TestNextAgainstAModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		e, now := NewExpiry(), time.Duration(0)
		for id := range int64(1 + rnd.IntN(20)) {
			e.Touch(id+1, time.Duration(1+rnd.Int64N(int64(30*time.Second))), now)
		}
		for range 20 {
			limit := now + time.Duration(rnd.Int64N(int64(slots*resolution)))
			first := limit
			e.All(func(_ int64, _, at time.Duration) { first = min(first, at) })
			must.Equal(t, e.Next(limit), first, "seed %d, at %v, up to %v", seed, now, limit)
			now = max(now, first)
			due(e, now)
		}
	}
}

// Due moves a bounded number of sessions in one call, and the next calls move the rest.
func TestDueMovesManySessionsInPieces(t *testing.T) {
	const sessions = 2*movedAtOnce + 1
	e := NewExpiry()
	for id := range int64(sessions) {
		e.Touch(id, 1000*ms, 0)
	}
	for id := range int64(sessions - 1) {
		e.Heard(id, 500*ms)
	}
	var ended []int64
	for call := range 3 {
		expect.Equal(t, e.Next(2000*ms), 1000*ms, "before call %d", call)
		ended = append(ended, due(e, 1200*ms)...)
	}
	expect.List(t, ended, []int64{sessions - 1}, "due")
	expect.Equal(t, e.Next(2000*ms), 1500*ms, "all are moved")
}
