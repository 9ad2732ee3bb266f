package main

// edit replaces one place of a file.
type edit struct{ old, new string }

// behind() returns the edit that adds text after a place.
func behind(place, text string) edit { return edit{place, place + text} }

// edits are the changes of each file below GOROOT/src.
var edits = map[string][]edit{
	// All that is random in a bubble comes from one stream. The keys of hashes are equal in all processes.
	"runtime/rand.go": {
		{"\tglobalRand.state.Init(*seed)\n", "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n"},
		{"\tmp.cheaprand = rand()\n", "\tmp.cheaprand = bootstrapRand()\n"},
		{"\tmp := getg().m\n\tc := &mp.chacha8\n", `	if b := getg().bubble; b != nil {
		return b.simNext()
	}
	if simAlone {
		return simStep(&sim.outer)
	}
	mp := getg().m
	c := &mp.chacha8
`},
	},
	"runtime/select.go": {
		{"\t\tj := cheaprandn(uint32(norder + 1))\n", "\t\tj := simRandn(uint32(norder + 1))\n"},
	},
	// The timers of a server can stand still, while the clock and the network go on.
	"runtime/time.go": {
		{"\t\t\tt.rand = cheaprand()\n", "\t\t\tt.rand = simRand32()\n"},
		behind("\trand    uint32 // randomizes order of timers at same instant; only set when isFake\n",
			"\n\tsimHost uint32 // the server whose goroutine made the timer; 0: none\n"),
		{"\tf := t.f\n\targ := t.arg\n\tseq := t.seq\n\tvar next int64\n",
			`	if until := simHeld(t, now); until != 0 {
		t.when = until
		if t.state&timerHeaped != 0 {
			t.state |= timerModified
			t.updateHeap()
		}
		t.unlock()
		return
	}
	f := t.f
	arg := t.arg
	seq := t.seq
	var next int64
`},
		behind("\t\tt.init(goroutineReady, gp)\n", "\t\tt.simHost = gp.simHost\n"),
		behind("\tt.timer.init(nil, nil)\n", "\tt.simHost = getg().simHost\n"),
	},
	// The random stream of a bubble begins with the seed of the run.
	"runtime/synctest.go": {
		behind("type synctestBubble struct {\n", "\tsim uint64 // state of the stream\n"),
		behind("\tbubble.now = synctestBaseTime\n", "\tsimBegin(bubble)\n"),
		{"\tgp.bubble = bubble\n\tdefer func() {\n\t\tgp.bubble = nil\n\t}()\n\n\t// This is newproc",
			`	gp.bubble = bubble
	simRuns.Add(1)
	defer func() {
		gp.bubble = nil
		simRuns.Add(-1)
	}()

	// This is newproc`},
	},
	// Goroutines of a bubble have a queue of their own, which does not hold goroutines of the runtime. Sysmon
	// takes no processor away while a bubble runs.
	"runtime/proc.go": {
		{"func retake(now int64) uint32 {\n\tn := 0\n", `func retake(now int64) uint32 {
	if simRuns.Load() > 0 {
		return 0
	}
	n := 0
`},
		{"func runqput(pp *p, gp *g, next bool) {\n", `func runqput(pp *p, gp *g, next bool) {
	if gp.bubble != nil {
		simPut(gp, next)
		return
	}
`},
		{"\t// local runq\n\tif gp, inherit", `	if gp := simGet(pp); gp != nil {
		if sim.collector == 0 {
			sim.picked = (sim.picked ^ gp.goid) * 1099511628211
		}
		return gp, false, false
	}

	// local runq
	if gp, inherit`},
		{"func runqempty(pp *p) bool {\n", `func runqempty(pp *p) bool {
	if simCount() > 0 {
		return false
	}
`},
		{`		runqput(pp, gp, true)
	} else {
		lock(&sched.lock)
		globrunqput(gp)
`, `		runqput(pp, gp, true)
	} else if gp.bubble != nil {
		simPut(gp, false)
	} else {
		lock(&sched.lock)
		globrunqput(gp)
`},
		behind("\tnewg.trackingSeq = uint8(cheaprand())\n", "\tnewg.simPrio, newg.simEpoch = 0, 0\n"+
			"\tnewg.simHost = callergp.simHost\n"),
		behind("\tgoenvs()\n\tsecure()\n", "\tsimProcess()\n"),
		{"\tmp := &new(mPadded).m\n", "\tmp := simNewM()\n"},
		{"\t\tmp.g0 = malg(16384 * sys.StackGuardMultiplier)\n",
			"\t\tmp.g0 = simMalg(16384 * sys.StackGuardMultiplier)\n"},
	},
	// The caches of type switches would grow at random moments, and so move later allocations. So they never
	// grow.
	"runtime/iface.go": {
		{"\tif cheaprand()&1023 != 0 {\n\t\t// Only bother updating the cache ~1 in 1000 times.\n\t\treturn",
			"\tif true {\n\t\treturn"},
		{"\tif cheaprand()&1023 != 0 {\n\t\t// Only bother updating the cache ~1 in 1000 times.\n\t\t// This",
			"\tif true {\n\t\t// This"},
	},
	// The scavenger gives memory back at moments that the real clock decides. It never runs in a process that
	// makes one run and nothing else.
	"runtime/mgcscavenge.go": {
		behind("func (s *scavengerState) wake() {\n", "\tif simAlone {\n\t\treturn\n\t}\n"),
	},
	"runtime/os_linux.go": {
		{"\tmp.gsignal = malg(32 * 1024)", "\tmp.gsignal = simMalg(32 * 1024)"},
	},
	"runtime/runtime2.go": {
		{"\tw := mWeakPointer{m: new(atomic.Pointer[m])}\n", "\tw := mWeakPointer{m: simNewWeak()}\n"},
		behind("\tbubble  *synctestBubble\n", "\n\tsimPrio, simEpoch, simHost uint32\n"),
		// The clock goes on even if the run delays a goroutine while it holds a lock.
		behind("\twaitReasonSleep:                 true,\n", "\twaitReasonSyncMutexLock:         true,\n"+
			"\twaitReasonSyncRWMutexRLock:      true,\n\twaitReasonSyncRWMutexLock:       true,\n"),
	},
	// These are the places where a run that explores may change to another goroutine.
	"runtime/chan.go": {
		behind("func chansend1(c *hchan, elem unsafe.Pointer) {\n", "\tsimPoint()\n"),
		behind("func chanrecv1(c *hchan, elem unsafe.Pointer) {\n", "\tsimPoint()\n"),
		behind("func chanrecv2(c *hchan, elem unsafe.Pointer) (received bool) {\n", "\tsimPoint()\n"),
	},
	"runtime/malloc.go": {
		behind("func mallocgc(size uintptr, typ *_type, needzero bool) unsafe.Pointer {\n",
			"\tsimAlloc(size)\n"),
	},
	"internal/sync/runtime.go": {
		{"//go:linkname throw\n", "//go:linkname simPoint\nfunc simPoint()\n\n//go:linkname throw\n"},
	},
	"internal/sync/mutex.go": {
		behind("func (m *Mutex) Lock() {\n", "\tsimPoint()\n"),
		behind("\t\tm.unlockSlow(new)\n\t}\n", "\tsimPoint()\n"),
	},
	"sync/atomic/type.go": {
		{"func (x *Pointer[T]) Store(val *T) { StorePointer(&x.v, unsafe.Pointer(val)) }",
			`func (x *Pointer[T]) Store(val *T) {
	StorePointer(&x.v, unsafe.Pointer(val))
	simPoint()
}

//go:linkname simPoint
func simPoint()`},
	},
	// The children of a context end in the order in which they were made.
	"context/context.go": {
		{"\tchildren map[canceler]struct{} //", "\tborn     uint64\n\tchildren map[canceler]uint64 //"},
		{"\t\t\t\tp.children = make(map[canceler]struct{})\n",
			"\t\t\t\tp.children = make(map[canceler]uint64)\n"},
		{"\t\t\tp.children[child] = struct{}{}\n", "\t\t\tp.born++\n\t\t\tp.children[child] = p.born\n"},
		{"\tfor child := range c.children {\n", `	order := make([]canceler, 0, len(c.children))
	for child, at := range c.children {
		i := len(order)
		order = append(order, child)
		for ; i > 0 && c.children[order[i-1]] > at; i-- {
			order[i] = order[i-1]
		}
		order[i] = child
	}
	for _, child := range order {
`},
	},
	// The bubble's clock measures how long a goroutine waits for a mutex.
	"runtime/sema.go": {
		{"func internal_sync_nanotime() int64 {\n", `func internal_sync_nanotime() int64 {
	if b := getg().bubble; b != nil {
		return b.now
	}
`},
	},
}
