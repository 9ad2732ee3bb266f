package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/zlockd/zlockd/server/machine"
)

// minHeap is the smallest heap that is collected. With the usual GOGC, the runtime would collect a heap of a
// few megabytes many times a second.
const minHeap = 64 << 20

// gcPercent returns the value of GOGC with which the next collection begins when the heap reaches minHeap, or
// 100 as usual if that is later. The most is 1600, because it also multiplies the runtime's own minimum of 4
// MB, to 64 MB.
func gcPercent(live uint64) int {
	const least, most = 100, 1600
	if live == 0 {
		return most
	}
	return int(min(max(100*minHeap/live, 200)-100, most))
}

// tuneGC sets GOGC to gcPercent() of the live heap, again after each collection. It does nothing if the
// operator has set GOGC.
func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := gcPercent(0)
	debug.SetGCPercent(percent)
	var again func(*byte)
	again = func(*byte) {
		if p := gcPercent(machine.RuntimeValue("/gc/heap/live:bytes")); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
		runtime.SetFinalizer(sentinel(), again)
	}
	runtime.SetFinalizer(sentinel(), again)
}

// sentinel() returns an object whose end shows that a collection has run. It shares no block of memory with
// other objects: one that lives would keep it.
func sentinel() *byte { return &make([]byte, 16)[0] }

const (
	idleLook  = 2 * time.Second // time between two checks by releaseIdle
	idleAlloc = 1 << 20         // a server that has allocated less since the last check counts as idle
	idleWorth = 8 << 20         // releaseIdle acts only if it can release more than this
)

// idleLooks returns how many checks in a row must find the server idle before releaseIdle collects its heap.
// One is enough for a small heap, which takes only milliseconds to collect.
func idleLooks(live uint64) int {
	if live <= minHeap {
		return 1
	}
	return 5
}

// releaseIdle gives memory back to the system when the server has become idle. Otherwise the memory of a
// burst, such as ten thousand clients that connect, would stay. It does so once after each burst, because to
// collect a large heap is expensive.
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
		allocated := machine.RuntimeValue("/gc/heap/allocs:bytes")
		if allocated-before > idleAlloc {
			idle = 0
		} else if idle++; idle == idleLooks(machine.RuntimeValue("/gc/heap/live:bytes")) {
			held := machine.RuntimeValue("/memory/classes/heap/objects:bytes") +
				machine.RuntimeValue("/memory/classes/heap/free:bytes") +
				machine.RuntimeValue("/memory/classes/heap/unused:bytes")
			if live := machine.RuntimeValue("/gc/heap/live:bytes"); held > live+idleWorth {
				debug.FreeOSMemory()
			}
		}
		before = allocated
	}
}
