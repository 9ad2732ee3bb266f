package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// workload is the repeated work of one connection on each of its slots. An operation may take
// several requests: the lock cycle takes three.
type workload interface {
	// start() appends the first request of a slot's next operation.
	start(c *wire.Pipe, slot int)
	// step() handles a reply; it either appends the next request of the operation
	// and returns false, or returns true when the operation is complete.
	step(c *wire.Pipe, slot int, r *wire.Frame) bool
}

// result is the outcome of a load.
type result struct {
	ops     int64
	elapsed time.Duration
	lat     hist
	seconds []int64       // operations in each second of the load
	pause   time.Duration // longest time in which no operation completed
}

func (r *result) rate() float64 { return float64(r.ops) / r.elapsed.Seconds() }

// load() runs workloads for the time d, one for each connection, with `depth` slots each. It returns the
// result of the operations that completed in that time.
func load(conns []*wire.Pipe, work []workload, depth int, d time.Duration) (*result, error) {
	return drive(conns, d, func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error {
		l := newLane(conns[i], work[i], depth, end)
		l.done = func(from, now time.Time) {
			if !now.Before(end) {
				return
			}
			done(from, now)
			if !stop.Load() {
				l.waiting = append(l.waiting, now)
			}
		}
		l.last = true // from here on read() starts an operation whenever another one is complete
		for now := time.Now(); len(l.waiting) < depth; {
			l.waiting = append(l.waiting, now)
		}
		l.fill()
		return errors.Join(l.c.Flush(), l.read())
	})
}

// openSlots is how many operations of openLoad can be in flight on a connection.
const openSlots = 64

// openLoad begins `rate` operations a second for the time d, at random times that do not depend on the
// answers: a connection sends an operation while those before it wait for their answers, as pipelining
// clients do. The latency of an operation counts from the time at which it was meant to begin.
func openLoad(conns []*wire.Pipe, work []workload, rate float64, d time.Duration) (*result, error) {
	gap := float64(time.Second) * float64(len(conns)) / rate
	return drive(conns, d, func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error {
		l := newLane(conns[i], work[i], openSlots, end)
		l.done = func(from, now time.Time) {
			if !from.IsZero() {
				done(from, now)
			}
		}
		answers := make(chan error, 1)
		go func() { answers <- l.read() }()
		var err error
		for from := time.Now(); err == nil && !l.last; {
			from = from.Add(time.Duration(rand.ExpFloat64() * gap))
			time.Sleep(time.Until(from))
			// The first operation after the end is the last one. It is not counted, but read() returns when
			// its answer comes.
			err = l.begin(from, !from.Before(end) || stop.Load())
		}
		if err != nil {
			l.c.SetDeadline(time.Now())
		}
		return errors.Join(err, <-answers)
	})
}

// lane is a connection with operations in flight, one in each of its slots. One goroutine reads the answers;
// another one may begin operations.
type lane struct {
	c    *wire.Pipe
	work workload
	done func(from, now time.Time) // called for each complete operation

	mu      sync.Mutex // guards the requests that c writes, and all fields below
	free    []int
	started []time.Time // when each slot's operation began
	queue   []int       // slots in the order of their outstanding requests
	waiting []time.Time // when operations were meant to begin that still wait for a slot
	last    bool        // begin() is not called again
	err     error       // from the goroutine that reads
}

func newLane(c *wire.Pipe, work workload, slots int, end time.Time) *lane {
	c.SetDeadline(end.Add(30 * time.Second))
	l := &lane{c: c, work: work, started: make([]time.Time, slots)}
	for slot := range slots {
		l.free = append(l.free, slot)
	}
	return l
}

// begin() starts an operation, or lets it wait for a free slot. If `last` is true, no operation follows, and
// this one is not counted: its start time is zero.
func (l *lane) begin(from time.Time, last bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = last; last {
		from = time.Time{}
	}
	if l.err != nil {
		l.last = true // so that no more operations begin; read() returns this error
		return nil
	}
	l.waiting = append(l.waiting, from)
	l.fill()
	return l.c.Flush()
}

// fill() starts operations that wait, as long as slots are free.
func (l *lane) fill() {
	for len(l.waiting) > 0 && len(l.free) > 0 {
		slot := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		l.started[slot] = l.waiting[0]
		l.waiting = append(l.waiting[:0], l.waiting[1:]...)
		l.work.start(l.c, slot)
		l.queue = append(l.queue, slot)
	}
}

// read() handles the answers until the last operation is complete. Requests go out in one write when no
// answer is left to handle.
func (l *lane) read() error {
	defer l.c.SetDeadline(time.Time{})
	for {
		r, err := l.c.Next()
		l.mu.Lock()
		if err == nil && r.Event == nil {
			err = l.answer(&r)
		}
		if err == nil && !l.c.Ready() {
			err = l.c.Flush()
		}
		l.err = err
		over := err != nil || l.last && len(l.queue) == 0
		l.mu.Unlock()
		if over {
			return err
		}
	}
}

// answer() passes a reply to the operation that has waited longest for one.
func (l *lane) answer(r *wire.Frame) error {
	if r.Code != jute.OK {
		return r.Code
	}
	slot := l.queue[0]
	l.queue = append(l.queue[:0], l.queue[1:]...)
	if !l.work.step(l.c, slot, r) {
		l.queue = append(l.queue, slot)
		return nil
	}
	l.free = append(l.free, slot)
	l.done(l.started[slot], time.Now())
	l.fill()
	return nil
}

// drive() calls f for all connections at once. Each call begins operations until the time `end`, which is d
// from now, and calls done() for each complete operation. drive() returns the result of these operations.
func drive(conns []*wire.Pipe, d time.Duration,
	f func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error) (*result, error) {
	var (
		mu       sync.Mutex
		total    = &result{seconds: make([]int64, int(d/time.Second)+1)}
		errs     []error
		stop     atomic.Bool
		begin    = time.Now()
		end      = begin.Add(d)
		lastDone atomic.Int64 // when the last operation ended, in ns since `begin`
		pause    atomic.Int64
		wg       sync.WaitGroup
	)
	// completed() is called for each operation inside the measured time.
	completed := func(now time.Time) {
		at := int64(now.Sub(begin))
		gap := at - lastDone.Swap(at)
		for old := pause.Load(); gap > old && !pause.CompareAndSwap(old, gap); old = pause.Load() {
		}
		atomic.AddInt64(&total.seconds[at/int64(time.Second)], 1)
	}
	for i := range conns {
		wg.Go(func() {
			var lat hist
			err := f(i, end, &stop, func(from, now time.Time) {
				lat.add(now.Sub(from))
				if now.Before(end) {
					completed(now)
				}
			})
			mu.Lock()
			defer mu.Unlock()
			total.lat.merge(&lat)
			if err != nil {
				stop.Store(true)
				errs = append(errs, fmt.Errorf("connection %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	total.ops, total.elapsed, total.pause = total.lat.n, d, time.Duration(pause.Load())
	return total, errors.Join(errs...)
}

// parallel() calls f(0) … f(n-1) from at most `limit` goroutines. A goroutine ends at its first error.
// parallel() returns all these errors.
func parallel(limit, n int, f func(int) error) error {
	var (
		next atomic.Int64
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	for range min(limit, n) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
