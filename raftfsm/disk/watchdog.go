package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// After a failed write raft steps down and continues with a wrong idea of its last entry. A failed fsync may
// even "succeed" when repeated, although the data are lost. If a call never returns, the server stays leader
// and no other server replaces it. So the watchdog times every call into a store. The first error, or a call
// that takes storeDeadline, ends the server. After a restart the server reads the true state from the disk.
const storeDeadline = 10 * time.Second // the watchdog warns after a tenth of this time

func newWatchdog(log *slog.Logger, fatal func(error)) *watchdog {
	return &watchdog{log: log, fatal: fatal, deadline: storeDeadline, calls: map[*storeCall]struct{}{}}
}

// watchdog watches the calls into the stores.
type watchdog struct {
	log      *slog.Logger
	fatal    func(error)
	deadline time.Duration         // how long one call may take
	broken   atomic.Pointer[error] // the first error; every later call fails with this error

	mu       sync.Mutex
	calls    map[*storeCall]struct{} // the calls under way
	count    uint64                  // how many calls there were since the start
	syncs    int64                   // how many durable appends there were
	syncTime time.Duration           // total time of the durable appends
	syncMax  time.Duration           // time of the longest durable append
}

// storeCall is one call into a store.
type storeCall struct {
	what  string
	nth   uint64 // number of the call among all calls; the first is 1
	ticks int    // ticks of watch() since the call began
}

// run() makes one call and times it.
func (w *watchdog) run(what string, call func() error) error {
	if b := w.broken.Load(); b != nil {
		return *b
	}
	c := &storeCall{what: what}
	w.mu.Lock()
	w.count++
	c.nth = w.count
	w.calls[c] = struct{}{}
	w.mu.Unlock()
	err := call()
	w.mu.Lock()
	delete(w.calls, c)
	w.mu.Unlock()
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || missing(err) {
		return err
	}
	return w.die(fmt.Errorf("storage failed: %s: %w", what, err))
}

// append() makes one call that appends to the log durably, and times it.
func (w *watchdog) append(what string, call func() error) error {
	start := time.Now()
	err := w.run(what, call)
	took := time.Since(start)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.syncs++
	w.syncTime += took
	w.syncMax = max(w.syncMax, took)
	return err
}

// timed() makes one call that returns a value, and times it.
func timed[T any](w *watchdog, what string, call func() (T, error)) (v T, err error) {
	err = w.run(what, func() (err error) { v, err = call(); return })
	return v, err
}

// watch() warns of slow calls, and ends the server if a call hangs. It returns when ctx ends. It counts ticks
// instead of asking the clock: a process that was stopped for a while counts only one tick, so it does not
// believe that its disk hangs.
func (w *watchdog) watch(ctx context.Context) {
	const ticks = 10
	tick := time.NewTicker(w.deadline / ticks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		hung := ""
		w.mu.Lock()
		for c := range w.calls {
			switch c.ticks++; {
			case c.ticks == 2:
				w.log.Warn("storage is slow", "op", c.what, "after", w.deadline/ticks)
			case c.ticks > ticks:
				hung = c.what
			}
		}
		w.mu.Unlock()
		if hung != "" {
			_ = w.die(fmt.Errorf("storage hangs: %s not done after %v", hung, w.deadline))
			return
		}
	}
}

// keyNotFound is the error text by which raft recognises a missing key, because raft has no error value for
// that.
const keyNotFound = "not found"

// missing() reports whether an error says that a store lacks a key.
func missing(err error) bool { return err.Error() == keyNotFound }

func (w *watchdog) die(err error) error {
	if w.broken.CompareAndSwap(nil, &err) {
		w.fatal(err)
	}
	return *w.broken.Load()
}
