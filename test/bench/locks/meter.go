package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/fence"
)

// meter collects what workers see, and checks that the locks exclude.
type meter struct {
	b     *benchFlags
	gate  fence.Gate
	locks []*benchLock

	mu             sync.Mutex
	on             bool // whether the measured time has begun and not ended
	acquire        []time.Duration
	handoff        []time.Duration
	counts         []int
	lost, failed   int
	violations     int
	firstViolation string
	firstError     error
}

// benchLock is the state of one lock in memory.
type benchLock struct {
	path     string
	readers  atomic.Int32
	writers  atomic.Int32
	released atomic.Int64 // when the latest release was sent, ns
	waiting  atomic.Int32
}

func newMeter(b *benchFlags) *meter {
	m := &meter{b: b, counts: make([]int, b.Clients*b.Goroutines)}
	for i := range b.Locks {
		m.locks = append(m.locks, &benchLock{path: fmt.Sprintf("%s/%s-%d", b.root, b.Recipe, i)})
	}
	return m
}

// begin() starts the measured time.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = true
}

// grant is a lock held by a worker.
type grant struct {
	token   fence.Token // 0 if the recipe has none
	mode    fence.Mode
	valid   func() bool
	release func(ctx context.Context) error
}

// work() takes locks until ctx ends.
func (m *meter) work(ctx context.Context, s session, worker int) {
	rnd := rand.New(rand.NewPCG(uint64(worker), 1))
	for ctx.Err() == nil {
		l := m.locks[rnd.IntN(len(m.locks))]
		shared := (m.b.Recipe == "rw" || m.b.Recipe == "policy") && rnd.Float64() < m.b.ReadRatio
		begun := time.Now()
		l.waiting.Add(1)
		g, err := s.lock(ctx, l.path, shared)
		now := time.Now()
		l.waiting.Add(-1)
		if err != nil {
			if ctx.Err() == nil {
				m.fail(err)
			}
			continue
		}
		m.granted(l, g, worker, begun, now)
		m.hold(ctx, l, g)
		if l.waiting.Load() > 0 {
			l.released.Store(time.Now().UnixNano())
		}
		// The release is part of the work, so the end of the measured time does not cancel the release.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		if err := g.release(end); err != nil {
			m.fail(err)
		}
		cancel()
	}
}

// granted() notes a grant.
func (m *meter) granted(l *benchLock, g grant, worker int, begun, now time.Time) {
	sent := l.released.Swap(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.on {
		return
	}
	m.acquire = append(m.acquire, now.Sub(begun))
	if at := time.Unix(0, sent); sent != 0 && begun.Before(at) {
		m.handoff = append(m.handoff, now.Sub(at))
	}
	m.counts[worker]++
}

// hold() is the critical section of a worker. It judges only what happens while the lease says that it is
// valid. After a loss another worker may be active, and the gate refuses what the former holder writes.
func (m *meter) hold(ctx context.Context, l *benchLock, g grant) {
	if g.token != 0 && g.mode != fence.Permit && g.valid() {
		if err := m.gate.Admit(l.path, g.mode, g.token); err != nil && g.valid() {
			m.violation("%s: %v", l.path, err)
		}
	}
	in, others := &l.writers, &l.readers
	if g.mode == fence.Shared {
		in, others = &l.readers, &l.writers
	}
	if m.b.Recipe != "sem" {
		n := in.Add(1)
		if (others.Load() > 0 || g.mode == fence.Exclusive && n > 1) && g.valid() && m.b.Fault == "none" {
			m.violation("%s: %d writers and %d readers at a time", l.path, l.writers.Load(), l.readers.Load())
		}
		defer in.Add(-1)
	}
	if m.b.Hold > 0 {
		pause(ctx, m.b.Hold)
	}
}

func (m *meter) violation(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations++
	if m.firstViolation == "" {
		m.firstViolation = fmt.Sprintf(format, args...)
	}
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isLoss(err) {
		m.lost++
		return
	}
	m.failed++
	if m.firstError == nil {
		m.firstError = err
	}
}

// report() ends the measured time, and returns the report on it.
func (m *meter) report(took time.Duration, c cost) report {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = false
	r := report{
		benchFlags: *m.b, HoldMs: ms(m.b.Hold), Seconds: took.Seconds(), Acquired: len(m.acquire),
		Acquire: percentilesOf(m.acquire), Handoff: percentilesOf(m.handoff), Jain: jain(m.counts),
	}
	if m.b.Recipe != "policy" {
		r.Policy = ""
	}
	r.PerSecond = float64(r.Acquired) / r.Seconds
	if n := float64(r.Acquired); n > 0 {
		r.Requests, r.Events, r.Bytes = float64(c.requests)/n, float64(c.events)/n, float64(c.bytes)/n
	}
	return r
}

// judge() adds the counts of losses, errors and violations, also from outside the measured time.
func (m *meter) judge(r *report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Lost, r.Errors, r.Violations = m.lost, m.failed, m.violations
}

// jain() returns Jain's fairness index.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}
