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
	// start appends the first request of a slot's next operation.
	start(c *wire.Pipe, slot int)
	// step handles a reply; it either appends the next request of the operation
	// and returns false, or returns true when the operation is complete.
	step(c *wire.Pipe, slot int, r *wire.Frame) bool
}

// result is the outcome of a load.
type result struct {
	ops     int64
	elapsed time.Duration
	lat     hist
	seconds []int64       // operations in each whole second, if asked for
	pause   time.Duration // longest time in which no operation completed
}

func (r *result) rate() float64 { return float64(r.ops) / r.elapsed.Seconds() }

// load runs workloads, one per connection with depth slots each, for d, and returns what
// completed in that time.
func load(conns []*wire.Pipe, work []workload, depth int, d time.Duration) (*result, error) {
	return drive(conns, d, func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error {
		return driveConn(conns[i], work[i], depth, end, stop, done)
	})
}

// openSlots is how many operations of openLoad can be in flight on a connection.
const openSlots = 64

// openLoad begins rate operations a second for d, at random times that do not depend on the answers:
// a connection sends an operation while those before it wait for their answers, as pipelining clients
// do. An operation counts from the time at which it was meant to begin.
func openLoad(conns []*wire.Pipe, work []workload, rate float64, d time.Duration) (*result, error) {
	gap := float64(time.Second) * float64(len(conns)) / rate
	return drive(conns, d, func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error {
		c := conns[i]
		c.SetDeadline(end.Add(30 * time.Second))
		defer c.SetDeadline(time.Time{})
		o := &openConn{c: c, work: work[i], done: done, free: make([]int, openSlots)}
		for slot := range o.free {
			o.free[slot] = slot
		}
		answers := make(chan error, 1)
		go func() { answers <- o.read() }()
		var err error
		for from := time.Now(); err == nil && !o.last; {
			from = from.Add(time.Duration(rand.ExpFloat64() * gap))
			time.Sleep(time.Until(from))
			// The operation behind the end is not counted. Its answer ends read.
			err = o.begin(from, !from.Before(end) || stop.Load())
		}
		if err != nil {
			c.SetDeadline(time.Now())
		}
		return errors.Join(err, <-answers)
	})
}

// openConn is a connection on which one goroutine begins operations and another reads the answers.
type openConn struct {
	c    *wire.Pipe
	work workload
	done func(from, now time.Time)

	mu      sync.Mutex // of the requests that c writes, and of all below
	free    []int
	started [openSlots]time.Time
	queue   []int       // slots in the order of their outstanding requests
	waiting []time.Time // operations for which no slot was free
	last    bool        // no further operation begins
	err     error       // of the goroutine that reads
}

// begin starts an operation, or keeps it for the next free slot.
func (o *openConn) begin(from time.Time, last bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last = last; last {
		from = time.Time{}
	}
	if o.err != nil {
		o.last = true // read returns the error
		return nil
	}
	o.waiting = append(o.waiting, from)
	o.fill()
	return o.c.Flush()
}

// fill starts operations that wait, as long as slots are free.
func (o *openConn) fill() {
	for len(o.waiting) > 0 && len(o.free) > 0 {
		slot := o.free[len(o.free)-1]
		o.free = o.free[:len(o.free)-1]
		o.started[slot] = o.waiting[0]
		o.waiting = o.waiting[1:]
		o.work.start(o.c, slot)
		o.queue = append(o.queue, slot)
	}
}

// read handles the answers until the last operation is complete.
func (o *openConn) read() error {
	for {
		r, err := o.c.Next()
		o.mu.Lock()
		if err == nil && r.Event == nil {
			err = o.answer(&r)
		}
		o.err = err
		over := err != nil || o.last && len(o.queue) == 0
		o.mu.Unlock()
		if over {
			return err
		}
	}
}

// answer takes the operation whose answer came first a step further.
func (o *openConn) answer(r *wire.Frame) error {
	if r.Code != jute.OK {
		return r.Code
	}
	slot := o.queue[0]
	o.queue = append(o.queue[:0], o.queue[1:]...)
	if !o.work.step(o.c, slot, r) {
		o.queue = append(o.queue, slot)
		return o.c.Flush()
	}
	if !o.started[slot].IsZero() {
		o.done(o.started[slot], time.Now())
	}
	o.free = append(o.free, slot)
	o.fill()
	return o.c.Flush()
}

// drive calls f for each connection, until end, d from now, and returns the operations that f says
// are done.
func drive(conns []*wire.Pipe, d time.Duration,
	f func(i int, end time.Time, stop *atomic.Bool, done func(from, now time.Time)) error) (*result, error) {
	var (
		mu       sync.Mutex
		total    = &result{seconds: make([]int64, int(d/time.Second)+1)}
		errs     []error
		stop     atomic.Bool
		begin    = time.Now()
		end      = begin.Add(d)
		lastDone atomic.Int64 // ns since begin
		pause    atomic.Int64
		wg       sync.WaitGroup
	)
	// completed is called for each operation inside the measured time.
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

// driveConn keeps depth operations in flight on c until end, then lets them
// finish. Requests go out in one write when no reply is left to handle.
func driveConn(c *wire.Pipe, w workload, depth int, end time.Time, stop *atomic.Bool,
	done func(from, now time.Time)) error {
	c.SetDeadline(end.Add(30 * time.Second))
	defer c.SetDeadline(time.Time{})
	started := make([]time.Time, depth)
	queue := make([]int, 0, depth) // slots in the order of their outstanding requests
	now := time.Now()
	for slot := range depth {
		started[slot] = now
		w.start(c, slot)
		queue = append(queue, slot)
	}
	for len(queue) > 0 {
		if !c.Ready() {
			if err := c.Flush(); err != nil {
				return err
			}
		}
		r, err := c.Next()
		if err != nil {
			return err
		}
		if r.Event != nil {
			continue
		}
		if r.Code != jute.OK {
			return r.Code
		}
		slot := queue[0]
		queue = append(queue[:0], queue[1:]...)
		if !w.step(c, slot, &r) {
			queue = append(queue, slot)
			continue
		}
		now := time.Now()
		if !now.Before(end) {
			continue
		}
		done(started[slot], now)
		if !stop.Load() {
			started[slot] = now
			w.start(c, slot)
			queue = append(queue, slot)
		}
	}
	return nil
}

// parallel calls f(0) … f(n-1) from up to limit goroutines and returns the
// first error of each.
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
