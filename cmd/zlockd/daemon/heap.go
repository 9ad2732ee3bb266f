package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/zlockd/zlockd/server/machine"
)

// minHeap is the smallest heap at which a collection begins. With GOGC alone the runtime would
// collect a heap of a few megabytes many times a second.
const minHeap = 64 << 20

// gcPercent returns the value of GOGC with which the next collection begins at minHeap or later. If the
// live heap is at least half of minHeap, the value is 100, as usual. The value 1600 raises the runtime's own
// smallest heap from 4 MB to 64 MB.
func gcPercent(live uint64) int {
	const least, most = 100, 1600
	if live == 0 {
		return most
	}
	return int(min(max(100*minHeap/live, 200)-100, most))
}

// tuneGC sets GOGC after every collection, to gcPercent() of the live heap. It does nothing if the operator
// has set GOGC.
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

// sentinel() returns an object that is soon garbage. It has a block of memory of its own: a live object in
// the same block would keep it.
func sentinel() *byte { return &make([]byte, 16)[0] }

const (
	idleLook  = 2 * time.Second // time between two checks by releaseIdle
	idleAlloc = 1 << 20         // a process that allocates less between two checks is idle
	idleWorth = 8 << 20         // releaseIdle acts only if it can release more than this
)

// idleLooks returns how many checks in a row must find the server idle before releaseIdle acts. One is enough
// if a collection takes only milliseconds.
func idleLooks(live uint64) int {
	if live <= minHeap {
		return 1
	}
	return 5
}

// releaseIdle returns memory to the system when the server becomes idle, so that the memory of
// a burst, such as ten thousand clients connecting, does not stay resident. It acts once per
// burst, because collecting a large heap is expensive.
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
