package apply

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A session's timeout counts from the time of the client's last message, not from the time at which the
// leader heard of it.
func TestG10DeadlinesOfSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newDeadlines()
		at := time.Now()
		tr.Touch(1, 1000)
		tr.Touch(2, 3000)
		left := func(id int64, want time.Duration) {
			t.Helper()
			expect.Equal(t, tr.All()[id], want, "session %d", id)
		}
		left(1, time.Second)
		left(2, 3*time.Second)
		time.Sleep(500 * time.Millisecond)
		left(1, 500*time.Millisecond)
		tr.Heard([]state.Touch{{Session: 1, Age: 100}, {Session: 2, Age: 800}, {Session: 3, Age: 0}})
		left(1, 900*time.Millisecond)
		// The touch of session 2 is older than what the leader already knew, so it changes nothing.
		left(2, 2500*time.Millisecond)
		expect.Equal(t, len(tr.All()), 2, "sessions with a deadline")
		// The leader must check again at the first deadline, or sooner.
		expect.Equal(t, tr.Next(0, 400*time.Millisecond), 400*time.Millisecond)
		expect.Equal(t, tr.Next(0, 10*time.Second), 500*time.Millisecond,
			"until the wheel comes to the first session")
		expect.Equal(t, len(tr.Due(at.Add(1399*time.Millisecond), 9)), 0, "sessions that are due")
		expect.List(t, tr.Due(at.Add(1400*time.Millisecond), 9), []int64{1})
		tr.Remove(1)
		expect.Equal(t, len(tr.All()), 1, "sessions with a deadline")
		time.Sleep(3 * time.Second)
		expect.Equal(t, tr.Next(0, 10*time.Second), time.Millisecond, "a session is overdue")
		tr.Touch(4, 1000)
		tr.Touch(5, 1000)
		time.Sleep(time.Hour)
		expect.Equal(t, len(tr.Due(time.Now(), 2)), 2, "sessions that are due, of three")
		table := session.NewTable(1)
		s := table.Create(5000, [jute.PasswordSize]byte{}, 2, "", 0)
		tr.replace(table)
		expect.Equal(t, len(tr.All()), 1, "sessions of another state")
		left(s.ID, 5*time.Second)
	})
}

// A server that stalls again and again gives its sessions more time, but not
// forever: silence still ends them.
func TestR25StallsDelayExpiryButNotForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newDeadlines()
		tr.Touch(1, 1000)
		for range 100 {
			time.Sleep(90 * time.Millisecond)
			if due := tr.Due(time.Now(), 10); len(due) > 0 {
				expect.That(t, tr.now() >= time.Second, "expired after %v", tr.now())
				return
			}
			time.Sleep(10 * time.Millisecond)
			tr.Stalled(10 * time.Millisecond)
		}
		t.Error("a silent session never ended")
	})
}

// A long stall gives a session its whole timeout back, however little of it was left.
func TestR25LongStallGivesTheFullTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newDeadlines()
		tr.Touch(1, 1000)
		time.Sleep(61 * time.Second)
		tr.Stalled(60 * time.Second)
		time.Sleep(900 * time.Millisecond)
		if due := tr.Due(time.Now(), 10); len(due) > 0 {
			t.Error("expired before its client had a full timeout to be heard")
		}
		time.Sleep(200 * time.Millisecond)
		expect.Equal(t, len(tr.Due(time.Now(), 10)), 1)
	})
}

// A pass over all sessions gives up the lock after each piece.
func TestPassOverAllSessionsLetsOthersIn(t *testing.T) {
	t.Parallel()
	tr := newDeadlines()
	for id := range int64(3 * piece) {
		tr.Touch(id, 1000)
	}
	during := false // whether a pass has begun and not ended; guarded by tr.mu
	pass := func() (met int) {
		tr.each(func(_ *session.Expiry, _ int64, _, _ time.Duration) {
			met++
			during = met < 3*piece
		})
		return met
	}
	let := make(chan struct{})
	go func() {
		defer close(let)
		for {
			tr.mu.Lock()
			in := during
			tr.mu.Unlock()
			if in {
				return
			}
			runtime.Gosched()
		}
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		must.Equal(t, pass(), 3*piece, "sessions")
		select {
		case <-let:
			return
		default:
		}
	}
	t.Error("nobody got the lock during a pass")
}

// BenchmarkMillionSessions measures what a leader does for all its sessions, a million of them.
func BenchmarkMillionSessions(b *testing.B) {
	const sessions = 1_000_000
	tr := newDeadlines()
	for id := range int64(sessions) {
		tr.Touch(id<<16, 30_000)
	}
	b.Run("Stalled", func(b *testing.B) {
		for b.Loop() {
			tr.Stalled(time.Second)
		}
	})
	b.Run("All", func(b *testing.B) {
		for b.Loop() {
			tr.All()
		}
	})
	// All sessions are in one slot of the wheel, as at the start of a term.
	b.Run("Due", func(b *testing.B) {
		at := time.Now()
		for b.Loop() {
			b.StopTimer()
			at = at.Add(31 * time.Second)
			for id := range int64(sessions) {
				tr.expiry.Heard(id<<16, at.Sub(tr.start)-time.Second)
			}
			b.StartTimer()
			tr.Due(at, 1)
		}
	})
}
