package main

// added are files that the library does not have.
var added = map[string]string{
	"runtime/sim.go": `package runtime

import (
	"internal/runtime/atomic"
	"unsafe"
)

// How a run chooses the next goroutine.
const (
	simUsual  = iota // as the scheduler does: the goroutine made ready last, then the first of the queue
	simRandom        // any goroutine
	simRanked        // the goroutine with the highest rank; ranks change now and then
	simDelayed       // as simUsual, but now and then a goroutine first waits, for some milliseconds at most
)

var (
	simSeed uint64       // of the next bubble
	simWays int          // how the next bubble chooses goroutines
	simRuns atomic.Int32 // bubbles that run

	simOften bool // with simDelayed, goroutines wait more often

	simAlone bool // the process makes one run, and nothing else

	sim struct {
		outer  uint64 // state of the stream outside bubbles
		choice     uint64 // state of the stream for choices
		ways       int
		next       guintptr // the goroutine made ready last
		head, tail uint32
		queue      [1 << 14]guintptr
		nexts      int // how many times in a row next was picked
		ticks      uint32
		epoch      uint32 // of the ranks
		now        int64  // the bubble's time at the last pick
		picks      int    // how many picks there were at that time

		held   [8]int64 // until when the timers of each server stand still
		heldUp [8]int   // how many timers of each server were due while they stood still

		collector guintptr // a goroutine that collects garbage: no other goroutine of the bubble runs

		picked  uint64 // a checksum of the goroutines that ran
		inside  uint64 // a checksum of the allocations inside bubbles
		outside uint64 // a checksum of the other allocations
	}
)

// simState returns the state of a run. If two runs of a seed become different, the first difference of their
// states shows the cause. The state has the random streams, the number and checksum of the picked goroutines,
// the goroutine that runs, the allocations inside and outside bubbles, the address of the next object on the
// heap, the pages of the heap, the collections of garbage, and the turns of the scheduler.
//
//go:linkname simState github.com/zlockd/zlockd/test/sim.runtimeState
func simState(s *[11]uint64) {
	gp := getg()
	if gp.bubble != nil {
		s[0] = gp.bubble.sim
	}
	s[1] = sim.choice
	s[2] = uint64(sim.ticks)
	s[3] = sim.picked
	s[4] = gp.goid
	s[5] = sim.inside
	s[6] = sim.outside
	s[7] = uint64(uintptr(mallocgc(16, nil, false)))
	s[8] = uint64(mheap_.pagesInUse.Load())
	s[9] = uint64(work.cycles.Load())
	s[10] = uint64(gp.m.p.ptr().schedtick)
}

//go:linkname simSetSeed github.com/zlockd/zlockd/test/sim.setSeed
func simSetSeed(seed uint64, ways int) { simSeed, simWays = seed, ways }

//go:linkname simSetOften github.com/zlockd/zlockd/test/sim.waitOften
func simSetOften(on bool) { simOften = on }

// simProcess is called when the process begins. If the process makes one run and nothing else, sysmon never
// takes a processor away.
func simProcess() {
	if gogetenv("ZLOCKD_SIM_ALONE") != "" {
		if iscgo {
			throw("build the simulation with CGO_ENABLED=0: the threads of cgo allocate on the heap")
		}
		simAlone = true
		simRuns.Add(1)
	}
}

// simNewM, simNewWeak and simMalg allocate the data of a thread. Threads begin at random moments. On the
// heap, their data would change the addresses of all later objects, and with these the order of maps that
// have pointers as keys. So these data are outside the heap. They are never freed.
func simNewM() *m {
	if !simAlone {
		return &new(mPadded).m
	}
	// Locks of the runtime store the address of a thread without the low bits. So the thread must have the
	// alignment that it would have on the heap, after a header.
	const size = 2048 // see mPadded
	mp := (*m)(add(persistentalloc(size, size, &memstats.other_sys), mallocHeaderSize))
	if mutexWaitListHead(uintptr(unsafe.Pointer(mp))).ptr() != mp {
		throw("a lock of the runtime would not find this thread")
	}
	return mp
}

func simNewWeak() *atomic.Pointer[m] {
	if !simAlone {
		return new(atomic.Pointer[m])
	}
	return (*atomic.Pointer[m])(persistentalloc(unsafe.Sizeof(atomic.Pointer[m]{}), 0, &memstats.other_sys))
}

func simMalg(size int32) *g {
	if !simAlone {
		return malg(size)
	}
	gp := (*g)(persistentalloc(unsafe.Sizeof(g{}), 64, &memstats.other_sys))
	size = round2(stackSystem + size)
	lo := uintptr(persistentalloc(uintptr(size), 4096, &memstats.other_sys))
	gp.stack = stack{lo, lo + uintptr(size)}
	gp.stackguard0 = lo + stackGuard
	gp.stackguard1 = ^uintptr(0)
	return gp
}

func simBegin(b *synctestBubble) {
	b.sim = simSeed
	sim.choice, sim.ways = simSeed^0x5851f42d4c957f2d, simWays
	sim.nexts, sim.ticks, sim.epoch, sim.picks = 0, 0, 1, 0
	sim.held = [8]int64{}
}

// simAsHost makes this goroutine one of the given server, or of none (0), and returns the former server.
// Goroutines and timers that the goroutine makes afterwards belong to the same server.
//
//go:linkname simAsHost github.com/zlockd/zlockd/test/sim.setHost
func simAsHost(host uint32) (was uint32) {
	gp := getg()
	was, gp.simHost = gp.simHost, host
	return was
}

// simHoldTimers lets the timers of a server stand still for some time.
//
//go:linkname simHoldTimers github.com/zlockd/zlockd/test/sim.holdTimers
func simHoldTimers(host uint32, ns int64) { sim.held[host] = getg().bubble.now + ns }

// simHeldUp returns how many timers of servers were due while they stood still.
//
//go:linkname simHeldUp github.com/zlockd/zlockd/test/sim.heldUp
func simHeldUp(host uint32) int { return sim.heldUp[host] }

// simHeld returns the time at which a timer that is due may fire, or 0 if it may fire now.
func simHeld(t *timer, now int64) int64 {
	if !t.isFake || t.simHost == 0 || sim.held[t.simHost] <= now {
		return 0
	}
	sim.heldUp[t.simHost]++
	return sim.held[t.simHost]
}

// simStep is splitmix64.
//
//go:nosplit
func simStep(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	x := *state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// simNext returns the next value of the bubble's stream.
//
//go:nosplit
func (b *synctestBubble) simNext() uint64 { return simStep(&b.sim) }

//go:nosplit
func simRand32() uint32 {
	if b := getg().bubble; b != nil {
		return uint32(b.simNext() >> 32)
	}
	return cheaprand()
}

//go:nosplit
func simRandn(n uint32) uint32 {
	return uint32((uint64(simRand32()) * uint64(n)) >> 32)
}

//go:nosplit
func simCount() uint32 {
	if sim.collector != 0 {
		return simCollects()
	}
	n := sim.tail - sim.head
	if sim.next != 0 {
		n++
	}
	return n
}

// simPut makes a goroutine of a bubble ready. It needs no lock, because there is only one processor.
func simPut(gp *g, next bool) {
	if next {
		old := sim.next
		sim.next.set(gp)
		if old == 0 {
			return
		}
		gp = old.ptr()
	}
	if sim.tail-sim.head == uint32(len(sim.queue)) {
		throw("too many goroutines are ready in a bubble")
	}
	sim.queue[sim.tail%uint32(len(sim.queue))].set(gp)
	sim.tail++
}

// simGet returns the next goroutine of a bubble, or nil if goroutines outside bubbles may run.
func simGet(pp *p) *g {
	n := simCount()
	if n == 0 {
		return nil
	}
	if sim.collector != 0 {
		return simTakeCollector()
	}
	if sim.ticks++; sim.ticks%4096 == 0 && pp.runqhead != pp.runqtail {
		return nil
	}
	if sim.ways == simUsual || sim.ways == simDelayed {
		if sim.next != 0 && (sim.nexts < 64 || n == 1) {
			sim.nexts++
			gp := sim.next.ptr()
			sim.next = 0
			return gp
		}
		sim.nexts = 0
		return simTake(sim.head)
	}
	if sim.next != 0 {
		gp := sim.next.ptr()
		sim.next = 0
		simPut(gp, false)
	}
	at := sim.head + uint32(simStep(&sim.choice)%uint64(n))
	if sim.ways == simRanked {
		at = simHighest(at)
	}
	return simTake(at)
}

// simCollect collects garbage with the world stopped (gcstoptheworld=2), so that later objects have the same
// addresses in all runs of a seed. It is random how often the collector yields. So simCollect does not count
// this, and no other goroutine of the bubble runs during the collection.
//
//go:linkname simCollect github.com/zlockd/zlockd/test/sim.collectGarbage
func simCollect() {
	ticks := getg().m.p.ptr().schedtick
	sim.collector.set(getg())
	GC()
	sim.collector = 0
	getg().m.p.ptr().schedtick = ticks
}

// simCollects returns 1 if the collector is ready.
//
//go:nosplit
func simCollects() uint32 {
	if sim.next == sim.collector {
		return 1
	}
	for at := sim.head; at != sim.tail; at++ {
		if sim.queue[at%uint32(len(sim.queue))] == sim.collector {
			return 1
		}
	}
	return 0
}

func simTakeCollector() *g {
	gp := sim.collector.ptr()
	if sim.next == sim.collector {
		sim.next = 0
		return gp
	}
	at := sim.head
	for sim.queue[at%uint32(len(sim.queue))] != sim.collector {
		at++
	}
	return simTake(at)
}

// simTake removes the goroutine at one place of the queue, and returns it.
func simTake(at uint32) *g {
	const size = uint32(len(sim.queue))
	gp := sim.queue[at%size].ptr()
	for ; at != sim.head; at-- {
		sim.queue[at%size] = sim.queue[(at-1)%size]
	}
	sim.head++
	return gp
}

// simHighest returns the place of the goroutine with the highest rank. Now and then the picked goroutine
// loses its rank, and sometimes all ranks change. After many picks at one time, it returns the random place
// any instead: the picked goroutine may poll for the work of a goroutine with a lower rank.
func simHighest(any uint32) uint32 {
	const size = uint32(len(sim.queue))
	if b := sim.queue[any%size].ptr().bubble; b.now != sim.now {
		sim.now, sim.picks = b.now, 0
	}
	if sim.picks++; sim.picks > 5000 {
		return any
	}
	r := simStep(&sim.choice)
	if r%(1<<14) == 0 {
		sim.epoch++
	}
	best := sim.head
	for at := sim.head; at != sim.tail; at++ {
		gp := sim.queue[at%size].ptr()
		if gp.simEpoch != sim.epoch {
			gp.simEpoch, gp.simPrio = sim.epoch, uint32(simStep(&sim.choice)>>32)|1
		}
		if gp.simPrio > sim.queue[best%size].ptr().simPrio {
			best = at
		}
	}
	if (r>>32)%512 == 0 {
		gp := sim.queue[best%size].ptr()
		gp.simPrio >>= 8
	}
	return best
}

// simPoint is called where goroutines meet. A run that explores may change to another goroutine there or soon
// after.
func simPoint() {
	if sim.ways == simUsual {
		return
	}
	gp := getg()
	if gp.bubble == nil || gp != gp.m.curg || gp.m.locks != 0 || gp.m.preemptoff != "" {
		return
	}
	switch r := simStep(&sim.choice); {
	case sim.ways == simDelayed:
		// The goroutine waits like a thread that gets no processor, even while it holds a lock.
		rarely := uint64(1<<11)
		if simOften {
			rarely = 1 << 7
		}
		if r%rarely == 0 && gp != gp.bubble.root {
			timeSleep(int64((r>>32)%(1<<(12+(r>>20)%13))) + 1)
		}
	case r%16 == 0:
		goyield()
	case r%16 == 1:
		gp.preempt, gp.stackguard0 = true, stackPreempt
	}
}

//go:linkname simPointOfSync internal/sync.simPoint
func simPointOfSync() { simPoint() }

//go:linkname simPointOfAtomic sync/atomic.simPoint
func simPointOfAtomic() { simPoint() }

// simAlloc counts an allocation. If a run explores, the goroutine may yield at one of its next calls.
func simAlloc(size uintptr) {
	if getg().bubble != nil {
		sim.inside = (sim.inside ^ uint64(size)) * 1099511628211
	} else {
		sim.outside = (sim.outside ^ uint64(size)) * 1099511628211
	}
	if sim.ways == simUsual || sim.ways == simDelayed {
		return
	}
	gp := getg()
	if gp.bubble == nil || gp != gp.m.curg {
		return
	}
	if simStep(&sim.choice)%256 == 0 {
		gp.preempt, gp.stackguard0 = true, stackPreempt
	}
}
`,
}
