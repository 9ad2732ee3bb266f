package sim

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// strayKinds harm one server in ways that its process can notice: reads of its files go wrong, or its timers
// stand still.
var strayKinds = []fault{
	{"failing reads", 3, func(f *faults, id uint32) { f.badReads("failing reads", id, false) }},
	{"flipped bits", 3, func(f *faults, id uint32) { f.badReads("flipped bits", id, true) }},
	{"stopped timers", 4, (*faults).stopTimers},
}

// badReads makes all reads of a server's log and snapshots go wrong for a while: they fail with EIO, or return
// the bytes with one bit flipped. The bytes on the disk stay as they are. So a server that reads its log must
// end, and after its restart all is well. A bad read of a snapshot need not end the server, because the
// server can write another one.
func (f *faults) badReads(name string, id uint32, flip bool) {
	rng, d := rand.New(rand.NewPCG(f.rng.Uint64(), 9)), f.upTo(10*time.Second)+time.Second
	pause := f.upTo(2 * time.Second)
	f.lasting(id, func() {
		l := f.mayStop(id)
		if l == nil {
			return
		}
		var bad, ofLog atomic.Int64
		files := f.disk(id).files
		files.OnRead(func(file string, b []byte) error {
			if len(b) < 8 || !strings.HasPrefix(file, dataDir+"/raft/log") &&
				!strings.HasPrefix(file, dataDir+"/snapshots") {
				return nil
			}
			bad.Add(1)
			if strings.HasPrefix(file, dataDir+"/raft/log") {
				ofLog.Add(1)
			}
			if !flip {
				return syscall.EIO
			}
			bit := rng.IntN(8 * (len(b) - 7)) // an entry of the log ends with up to seven bytes that say nothing
			b[bit/8] ^= 1 << (bit % 8)
			return nil
		})
		for end := time.Now().Add(d); time.Now().Before(end) && !l.dead.Load(); {
			time.Sleep(100 * time.Millisecond)
		}
		files.OnRead(nil)
		if bad.Load() > 0 {
			f.took(name)
		}
		if ofLog.Load() > 0 && !l.dead.Load() {
			time.Sleep(time.Second)
		}
		if n := ofLog.Load(); n > 0 && !l.dead.Load() {
			f.t.Errorf("G26: server %d goes on after %d reads of its log went wrong (%s)", id, n, name)
		}
		if bad.Load() == 0 && !l.dead.Load() {
			l.ends.Store(false)
			return
		}
		f.crash(id)
		time.Sleep(pause)
		f.start(id)
	})
	f.idle = true // it is counted when a read goes wrong
}

// stopTimersOf lets the timers of a server stand still for some time, and timersHeldUp returns how many of
// them were due while they stood still. Both do nothing with the plain toolchain.
var (
	stopTimersOf = func(id uint32, d time.Duration) {}
	timersHeldUp = func(id uint32) int { return 0 }
)

// stopTimers lets all timers of a server stand still, while its clock, its network and its disk go on. The
// deadlines of its connections are timers of the network. The server hears from the others and answers them,
// but does nothing by itself. It does not tell the leader of its clients either, so the time is shorter than
// the timeout of the steady clients.
func (f *faults) stopTimers(id uint32) {
	d := f.upTo(12 * time.Second)
	f.lasting(id, func() {
		before := timersHeldUp(id)
		stopTimersOf(id, d)
		time.Sleep(d)
		if timersHeldUp(id) > before {
			f.took("stopped timers")
		}
	})
	f.idle = true
}
