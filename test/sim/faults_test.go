package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// faults harm a cluster. Some faults end at once; others last while further faults happen.
type faults struct {
	*cluster
	wg    sync.WaitGroup
	rng   *rand.Rand     // random numbers for the newest fault
	count map[string]int // how often each kind of fault took effect
	idle  bool           // the newest fault had no effect
	drawn map[string]int // how many faults (key "f") and requests of each client were drawn
}

func newFaults(c *cluster) *faults {
	return &faults{cluster: c, rng: c.rng, count: map[string]int{}, drawn: map[string]int{}}
}

// clientHosts is the number of hosts whose wires to the servers may be cut.
const clientHosts = 8

// fault is one kind of harm, with its frequency relative to the others.
type fault struct {
	name  string
	often int
	do    func(f *faults, id uint32)
}

var kinds = []fault{
	{"heal", 45, func(f *faults, _ uint32) { f.net.Heal() }},
	{"cut one way", 8, func(f *faults, id uint32) { f.net.Cut(hostName(id), hostName(f.another(id))) }},
	{"cut both ways", 4, func(f *faults, id uint32) { f.cutBoth(hostName(id), hostName(f.another(id))) }},
	{"isolate from servers", 8, (*faults).isolate},
	{"isolate the leader", 3, func(f *faults, id uint32) { f.isolate(f.leaderOr(id)) }},
	{"cut clients", 8, (*faults).cutClients},
	{"flap", 2, (*faults).flap},
	{"crash", 12, func(f *faults, id uint32) { f.away(id, f.upTo(2*time.Second)) }},
	{"crash the leader", 6, func(f *faults, id uint32) { f.away(f.leaderOr(id), f.upTo(2*time.Second)) }},
	{"long away", 3, func(f *faults, id uint32) { f.away(id, 20*time.Second+f.upTo(30*time.Second)) }},
	{"orderly restart", 4, (*faults).restart},
	{"power loss of all", 2, (*faults).powerLoss},
	{"freeze", 5, func(f *faults, id uint32) { f.freeze(id, f.upTo(12*time.Second)) }},
	{"freeze the leader", 5, func(f *faults, id uint32) { f.freeze(f.leaderOr(id), f.upTo(12*time.Second)) }},
	{"freeze all", 1, (*faults).freezeAll},
	{"slow disk", 4, (*faults).slowDisk},
	{"hanging disk", 4, (*faults).hangDisk},
	{"clock jump", 3, (*faults).jump},
	{"snapshot", 4, func(f *faults, id uint32) {
		if i := f.server(id); i != nil {
			f.wg.Go(func() { i.Node().Snapshot() })
		}
	}},
}

// bulkyKinds are additional faults for runs with large values: a disk or a wire then has room for some bytes
// only.
var bulkyKinds = []fault{
	{"small disk", 12, (*faults).smallDisk},
	{"slow wires", 6, func(f *faults, _ uint32) { f.slowWires() }},
	{"starved server", 6, (*faults).starve},
}

// smallDisk leaves a server's disk little or no room for a while; the room can end at any byte. The server
// may refuse requests, or exit. After an exit the run restarts the server once the disk has room.
func (f *faults) smallDisk(id uint32) {
	room, d := f.rng.Int64N(3<<20), f.upTo(15*time.Second)
	f.lasting(id, func() {
		f.mayStop(id)
		disk := f.disk(id)
		disk.files.Limit(disk.files.Used() + room)
		time.Sleep(d)
		disk.files.Limit(1 << 50)
		f.crash(id)
		f.start(id)
	})
}

// slowWires limits every wire to some hundred kilobytes a second.
func (f *faults) slowWires() {
	rate, d := 100<<10+f.rng.IntN(1<<20), f.upTo(10*time.Second)
	f.net.Throttle(rate)
	f.wg.Go(func() {
		time.Sleep(d)
		f.net.Throttle(0)
	})
}

// starve() lets a server run for some milliseconds at a time.
func (f *faults) starve(id uint32) {
	d := f.upTo(10 * time.Second)
	f.lasting(id, func() {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			f.net.Freeze(hostName(id))
			time.Sleep(100 * time.Millisecond)
			f.net.Thaw(hostName(id))
		}
	})
}

// collect() collects garbage in an exact run, in which the runtime does not do so by itself. Otherwise the
// run would take ever more fresh memory, which costs more time than collecting.
var collect = func() {}

// runFaults makes faults for a run's length, then repairs everything.
func (c *cluster) runFaults(kinds []fault) *faults {
	f := newFaults(c)
	f.during(runLength(), 8*time.Second, kinds)
	f.mend()
	return f
}

// mend() repairs everything.
func (f *faults) mend() {
	f.wg.Wait()
	f.net.Heal()
}

// during() makes faults for a time, with pauses of at most `most` between them.
func (f *faults) during(d, most time.Duration, kinds []fault) {
	only := f.only.of("f")
	sum := 0
	for _, k := range kinds {
		sum += k.often
	}
	for end := time.Now().Add(d); time.Now().Before(end); f.drawn["f"]++ {
		time.Sleep(time.Duration(f.cluster.rng.Int64N(int64(most))))
		if f.drawn["f"]%15 == 14 {
			collect()
		}
		at := f.cluster.rng.IntN(sum)
		id := uint32(1 + f.cluster.rng.IntN(3))
		// The draws of a fault depend only on its number, so that leaving out one fault changes no other
		// fault.
		f.rng = rand.New(rand.NewPCG(f.seed, 1<<32+uint64(f.drawn["f"])))
		if only != nil && !only(f.drawn["f"]) {
			continue
		}
		for _, k := range kinds {
			if at -= k.often; at < 0 {
				if f.idle = k.name == "heal"; only != nil {
					f.t.Logf("fault %d: %s, server %d", f.drawn["f"], k.name, id)
				}
				if k.do(f, id); !f.idle {
					f.took(k.name)
				}
				break
			}
		}
	}
}

// took() counts a fault that took effect.
func (f *faults) took(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[name]++
}

func (f *faults) total() (n int) {
	for _, k := range f.count {
		n += k
	}
	return n
}

func (f *faults) upTo(d time.Duration) time.Duration { return time.Duration(f.rng.Int64N(int64(d))) }

// another() returns one of the other two servers.
func (f *faults) another(id uint32) uint32 { return 1 + (id+uint32(f.rng.IntN(2)))%3 }

func (f *faults) leaderOr(id uint32) uint32 {
	if l := f.leader(); l != 0 && l <= 3 {
		return l
	}
	return id
}

// claim() gives a server to a lasting fault, unless another fault already has the server.
func (f *faults) claim(id uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.busy[id]
	f.busy[id] = true
	return !was
}

func (f *faults) release(id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy[id] = false
}

// lasting() runs a lasting fault at a server, in parallel with other faults, if that server has no fault yet.
func (f *faults) lasting(id uint32, do func()) {
	if f.idle = !f.claim(id); !f.idle {
		f.wg.Go(func() {
			defer f.release(id)
			do()
		})
	}
}

func (f *faults) cutBoth(a, b string) {
	f.net.Cut(a, b)
	f.net.Cut(b, a)
}

func (f *faults) isolate(id uint32) {
	for other := uint32(1); other <= 4; other++ {
		if other != id {
			f.cutBoth(hostName(id), hostName(other))
		}
	}
}

func (f *faults) cutClients(id uint32) {
	for k := range clientHosts {
		if f.rng.IntN(2) == 0 {
			f.cutBoth(fmt.Sprintf("c%d", k), hostName(id))
		}
	}
}

// flap() cuts and mends the wire between two servers quickly.
func (f *faults) flap(id uint32) {
	a, b := hostName(id), hostName(f.another(id))
	f.wg.Go(func() {
		for range 20 {
			f.cutBoth(a, b)
			time.Sleep(200 * time.Millisecond)
			f.net.Mend(a, b)
			f.net.Mend(b, a)
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// away() crashes a server and starts it again later.
func (f *faults) away(id uint32, d time.Duration) {
	f.lasting(id, func() {
		f.crash(id)
		time.Sleep(d)
		f.start(id)
	})
}

func (f *faults) restart(id uint32) {
	f.lasting(id, func() {
		f.stop(id)
		f.start(id)
	})
}

// powerLoss takes the power from all servers at once.
func (f *faults) powerLoss(uint32) {
	for id := range f.ids() {
		if f.claim(id) {
			f.crash(id)
			f.wg.Go(func() {
				defer f.release(id)
				time.Sleep(time.Second)
				f.start(id)
			})
		}
	}
}

// freeze() stops a server's network and disk. Its clocks continue, unlike those of a stopped process; tests
// with real processes cover that case.
func (f *faults) freeze(id uint32, d time.Duration) {
	disk := f.disk(id)
	f.lasting(id, func() {
		f.net.Freeze(hostName(id))
		disk.Hang()
		hang := min(d, 8*time.Second) // a server exits if its disk hangs for longer than this
		time.Sleep(hang)
		disk.Go()
		time.Sleep(d - hang)
		f.net.Thaw(hostName(id))
	})
}

// freezeAll stops all servers for a minute.
func (f *faults) freezeAll(uint32) {
	for id := range f.ids() {
		f.freeze(id, time.Minute)
	}
}

func (f *faults) slowDisk(id uint32) {
	disk, latency, d := f.disk(id), f.upTo(200*time.Millisecond)+1, f.upTo(20*time.Second)
	f.wg.Go(func() {
		disk.Slow(latency)
		time.Sleep(d)
		disk.Slow(500 * time.Microsecond)
	})
}

func (f *faults) hangDisk(id uint32) {
	disk, d := f.disk(id), f.upTo(8*time.Second)
	f.lasting(id, func() {
		disk.Hang()
		time.Sleep(d)
		disk.Go()
	})
}

// jump() sets a server's wall clock up to an hour forward or back. In runs with tickets the jumps are
// shorter, because leaders forget ended tickets after ten minutes of their clocks. They also forget a rate
// after a minute without a draw. With the shorter jumps at least ten seconds of that minute really pass, and
// no rate in these runs is for a longer time.
func (f *faults) jump(id uint32) {
	d := f.upTo(2*time.Hour) - time.Hour
	if f.set.tickets {
		d /= 160
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skew[id] = d
}
