package sim

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/seglog"
)

// serverDisk is the data that a server keeps between two lives: a real data directory, with identity, terms
// and votes, log and snapshots, on a simulated disk. The disk loses any part of the unsynced data. Tests can
// slow down its writes or make them hang.
type serverDisk struct {
	mu      sync.Mutex
	rng     *rand.Rand
	files   *Disk
	life    *life
	latency time.Duration
	grid    time.Duration // writes end at multiples of this time
	flow    chan struct{} // closed unless writes hang
	logFlow chan struct{} // closed unless syncs of the log hang

	crashIn int    // number of operations until a power loss; 0: none
	cut     func() // called just before the power loss
}

// dataDir is the path of every server's data directory, on its own disk.
const dataDir = "/var/zlockd"

// newServerDisk returns an empty disk.
func newServerDisk(rng *rand.Rand) *serverDisk {
	d := &serverDisk{rng: rng, files: NewDisk(rand.New(rand.NewPCG(rng.Uint64(), 5))),
		latency: 500 * time.Microsecond, flow: make(chan struct{}), logFlow: make(chan struct{})}
	close(d.flow)
	close(d.logFlow)
	d.files.LeaveGhosts()
	d.files.OnOp(func(op DiskOp) error {
		d.countDown(op)
		if op.Kind != "sync" && op.Kind != "syncdir" && op.Kind != "set" {
			return nil
		}
		d.mu.Lock()
		l, flow := d.life, d.logFlow
		d.mu.Unlock()
		if l == nil {
			return nil
		}
		if strings.HasPrefix(op.Name, dataDir+"/raft/log") {
			select {
			case <-flow:
			case <-l.gone:
			}
		}
		l.sync()
		return nil
	})
	return d
}

// Files begins a new life of the server with what the disk holds.
func (d *serverDisk) Files() *disk.Files {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &life{d: d, gone: make(chan struct{})}
	d.life = l
	m := d.files.Mount()
	return &disk.Files{FS: m, Stable: m.Keys(), Log: seglog.Options{FirstSize: 32 << 10, FullSize: 512 << 10}}
}

// free() returns how many more bytes the disk can hold.
func (d *serverDisk) free(string) (int64, error) { return d.files.Free(), nil }

// Crash ends the server's present life: it ends the process or, more often, turns off the power. Without
// power the disk loses all unsynced data, or any part of it. The old life may go on for a while, without
// effect.
func (d *serverDisk) Crash() {
	d.mu.Lock()
	power := d.rng.IntN(3) > 0
	d.mu.Unlock()
	d.end(power)
}

// PowerLoss ends the server's present life by turning off the power.
func (d *serverDisk) PowerLoss() { d.end(true) }

func (d *serverDisk) end(power bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return
	}
	close(d.life.gone)
	d.life = nil
	if power {
		d.files.PowerLoss()
	} else {
		d.files.Kill()
	}
}

// CrashAt turns off the power at the nth change of the disk after the call. Just before that it calls cut(),
// which must cut this life off from all other hosts.
func (d *serverDisk) CrashAt(nth int, cut func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashIn, d.cut = nth, cut
}

func (d *serverDisk) countDown(op DiskOp) {
	if !op.Changes() {
		return
	}
	d.mu.Lock()
	cut := d.cut
	if d.life == nil || d.crashIn == 0 {
		cut = nil
	} else if d.crashIn--; d.crashIn > 0 {
		cut = nil
	}
	d.mu.Unlock()
	if cut != nil {
		cut()
		d.PowerLoss()
	}
}

// Slow sets the latency of every write.
func (d *serverDisk) Slow(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Hang blocks every write until Go is called.
func (d *serverDisk) Hang() { d.hold(&d.flow) }

// HangLog blocks the log's syncs until Go is called; terms and votes still reach the disk.
func (d *serverDisk) HangLog() { d.hold(&d.logFlow) }

func (d *serverDisk) hold(flow *chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-*flow:
		*flow = make(chan struct{})
	default:
	}
}

// Go ends Hang and HangLog.
func (d *serverDisk) Go() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, flow := range []chan struct{}{d.flow, d.logFlow} {
		select {
		case <-flow:
		default:
			close(flow)
		}
	}
}

// life is the disk in one life of its server, from the server's start to its end.
type life struct {
	d    *serverDisk
	gone chan struct{} // closed by Crash; later writes are lost
}

// sync() waits until a write is on the disk, or the life has ended.
func (l *life) sync() {
	d := l.d
	defer asHost(asHost(0)) // the disk goes on while the timers of its server stand still
	d.mu.Lock()
	flow := d.flow
	wait := d.latency/2 + time.Duration(d.rng.Int64N(int64(d.latency)+1))
	wait = time.Until(onGrid(time.Now().Add(wait), d.grid))
	d.mu.Unlock()
	select {
	case <-flow:
		select {
		case <-time.After(wait):
		case <-l.gone:
		}
	case <-l.gone:
	}
}
