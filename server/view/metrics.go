package view

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
)

// meter computes metrics of the locks. It compares the newest scan with the one before, and counts a grant
// for each new holder. It misses a hold that begins and ends between two scans.
type meter struct {
	mu     sync.Mutex
	before map[string]seen     // the locks at the last look, by path
	sums   map[string]*lockSum // by prefix: at most maxPrefixes of them, and "other"
	at     time.Time           // the time of the newest scan that the meter has read
}

// The type seen is what one scan showed of a lock.
type seen struct {
	next    int32 // number of contenders that have come so far
	waiters int
	holders []int64 // tokens of the holders
}

// lockSum holds the figures of the locks below one prefix.
type lockSum struct {
	held, waiters int
	wait, hold    int64 // when the oldest wait or hold began; 0: there is none
	grants        int64
	at            time.Time // the time of the newest scan that found a lock below the prefix
}

// maxSeen bounds the locks that a meter remembers from one scan to the next.
const maxSeen = 100_000

// look() adds a scan to the metrics. It ignores a scan that is not newer than the last one: two requests for
// metrics may hand over their scans in the wrong order.
func (m *meter) look(s *look.Scan) {
	if !s.At.After(m.at) {
		return
	}
	if m.sums == nil {
		m.sums = map[string]*lockSum{}
	}
	for _, sum := range m.sums {
		*sum = lockSum{grants: sum.grants, at: sum.at}
	}
	m.makeRoom(s)
	now := make(map[string]seen, min(len(s.Locks), maxSeen))
	for i := range s.Locks {
		q := &s.Locks[i]
		if q.Kind == recipe.KindUnknown || q.Kind == recipe.KindParty {
			continue
		}
		sum := m.sum(label(m.sums, prefixOf(s, q.Path)))
		sum.at = s.At
		if len(q.Holders) > 0 {
			sum.held++
		}
		waiters := waiting(q)
		sum.waiters += waiters
		sum.wait = older(sum.wait, q.OldestWait())
		sum.hold = older(sum.hold, q.OldestHold())
		is := seen{next: q.Next, waiters: waiters}
		for j := range q.Holders {
			is.holders = append(is.holders, q.Holders[j].Token)
		}
		was, known := m.before[q.Path]
		if !m.at.IsZero() {
			sum.grants += granted(q, was, is, known)
		}
		if len(now) < maxSeen {
			now[q.Path] = is
		}
	}
	m.before, m.at = now, s.At
}

// waiting() returns how many contenders wait. A scan may leave out the end of a long queue, but the total
// number of contenders includes it.
func waiting(q *recipe.Queue) int {
	if len(q.Waiters) == 0 {
		return 0
	}
	return q.Total - len(q.Holders) - len(q.Participants)
}

// granted() returns the least number of grants that can explain the difference between two scans of a lock:
// the number of new holders, or of contenders that came and no longer wait, whichever is greater.
func granted(q *recipe.Queue, was, is seen, known bool) int64 {
	fresh := 0
	for _, token := range is.holders {
		if !slices.Contains(was.holders, token) {
			fresh++
		}
	}
	passed := 0
	if known && q.Kind != recipe.KindSimple && q.Kind != recipe.KindSemaphore && q.Policy == "" {
		passed = int(is.next-was.next) - (is.waiters - was.waiters)
	}
	return int64(max(fresh, passed))
}

func older(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Measure adds the metrics of the locks to a status.
func (v *View) Measure(st *report.Status) {
	ctx, cancel := context.WithTimeout(context.Background(), ask.CostlyTime)
	defer cancel()
	s, err := v.look.Locks(ctx)
	if err != nil {
		return // without the metrics of locks; the status has all others
	}
	m := &v.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(s)
	now := v.o.Now().UnixMilli()
	age := func(since int64) float64 {
		if since == 0 {
			return 0
		}
		return max(0, float64(now-since)/float64(time.Second/time.Millisecond))
	}
	st.Measure("lock_suspected_deadlocks", "Sets of sessions or tasks that seem to wait for each other.",
		float64(s.Suspected()))
	st.Measure("locks_held_twice", "Locks held at once by programs that do not see each other.",
		float64(s.Twice))
	st.Measure("lock_holds_over_limit", "Holders that stay although their maximum hold is over.",
		float64(s.Over))
	st.Measure("lock_scan_seconds", "Time that the newest look at all locks took.", s.Took.Seconds())
	for _, prefix := range slices.Sorted(maps.Keys(m.sums)) {
		sum, label := m.sums[prefix], report.Pair{Key: "prefix", Value: prefix}
		st.Measure("locks_held", "Locks that a client holds, by the first part of the path.", float64(sum.held),
			label)
		st.Measure("lock_waiters", "Contenders that wait.", float64(sum.waiters), label)
		st.Measure("lock_oldest_wait_seconds", "Longest time for which a contender waits now.", age(sum.wait),
			label)
		st.Measure("lock_longest_hold_seconds", "Upper bound of the longest time for which a lock is held now.",
			age(sum.hold),
			label)
		st.Measure("lock_grants_total",
			"Grants that a look at the locks has seen; it misses locks that come and go between two looks.",
			float64(sum.grants), label)
	}
}
