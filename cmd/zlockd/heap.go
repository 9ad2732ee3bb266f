package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// minHeap is the least heap at which a collection begins. With GOGC alone a
// heap of a few megabytes would be collected many times a second.
const minHeap = 64 << 20

// gcPercent returns the GOGC at which the next collection begins no earlier
// than minHeap, and 100 once the live heap is half of that. 1600 is what makes
// the runtime's own least heap of 4 MB one of 64.
func gcPercent(live uint64) int {
	const least, most = 100, 1600
	if live == 0 {
		return most
	}
	return int(min(max(100*minHeap/live, 200)-100, most))
}

// tuneGC keeps the collector's percentage at gcPercent of the live heap, after
// every collection. An operator's GOGC is left alone.
func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := gcPercent(0)
	debug.SetGCPercent(percent)
	var again func(*byte)
	again = func(old *byte) {
		if p := gcPercent(read("/gc/heap/live:bytes")); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
		runtime.SetFinalizer(sentinel(), again)
	}
	runtime.SetFinalizer(sentinel(), again)
}

// sentinel returns garbage of its own, not a piece of a block shared with what
// lives on.
func sentinel() *byte { return &make([]byte, 16)[0] }

const (
	idleLook  = 2 * time.Second // how often releaseIdle looks
	idleAlloc = 1 << 20         // a process that allocates less is idle
	idleWorth = 8 << 20         // more than this must be to be had
)

// idleLooks is how many looks in a row must find the server idle: one, if a
// collection is a matter of milliseconds.
func idleLooks(live uint64) int {
	if live <= minHeap {
		return 1
	}
	return 5
}

// releaseIdle gives memory back to the system when the server has become
// idle, so that a burst, say of ten thousand clients who connect, does not stay
// resident. It works once per burst: a collection of a large heap is not for nothing.
func releaseIdle(ctx context.Context) {
	tick := time.NewTicker(idleLook)
	defer tick.Stop()
	before, idle := uint64(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		allocated := read("/gc/heap/allocs:bytes")
		if allocated-before > idleAlloc {
			idle = 0
		} else if idle++; idle == idleLooks(read("/gc/heap/live:bytes")) {
			held := read("/memory/classes/heap/objects:bytes") + read("/memory/classes/heap/free:bytes") + read(
				"/memory/classes/heap/unused:bytes")
			if live := read("/gc/heap/live:bytes"); held > live+idleWorth {
				debug.FreeOSMemory()
			}
		}
		before = allocated
	}
}

// read returns one of the runtime's numbers.
func read(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
