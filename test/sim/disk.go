package sim

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/test/simdisk"
)

// Disk is what a server keeps between two lives: a real data directory, with
// identity, terms and votes, log and snapshots, on a simulated disk that loses any
// part of what was not synced. Writes take time, and can be made to take longer or
// to hang.
type Disk struct {
	mu      sync.Mutex
	rng     *rand.Rand
	files   *simdisk.Disk
	life    *life
	latency time.Duration
	flow    chan struct{} // closed while writes are not held up
	logFlow chan struct{} // closed while syncs of the log are not
}

// dataDir is where every server's data directory is, on its own disk.
const dataDir = "/var/zlockd"

// NewDisk returns an empty disk.
func NewDisk(rng *rand.Rand) *Disk {
	d := &Disk{rng: rng, files: simdisk.New(rand.New(rand.NewPCG(rng.Uint64(), 5))),
		latency: 500 * time.Microsecond, flow: make(chan struct{}), logFlow: make(chan struct{})}
	close(d.flow)
	close(d.logFlow)
	d.files.LeaveGhosts()
	d.files.OnOp(func(op simdisk.Op) error {
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

// Files begins a new life with what is on the disk.
func (d *Disk) Files() *disk.Files {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &life{d: d, gone: make(chan struct{})}
	d.life = l
	m := d.files.Mount()
	return &disk.Files{FS: m, Stable: m.Keys(), Log: seglog.Options{FirstSize: 32 << 10, FullSize: 512 << 10}}
}

// free is what may still be written.
func (d *Disk) free(string) (int64, error) { return d.files.Free(), nil }

// Crash ends the life, as the end of its process or, more often, of its power
// does: what was not synced is lost, or any part of it. The old life may go on
// for a while, and nobody will know.
func (d *Disk) Crash() {
	d.mu.Lock()
	power := d.rng.IntN(3) > 0
	d.mu.Unlock()
	d.end(power)
}

// PowerLoss ends the life as the end of its power does.
func (d *Disk) PowerLoss() { d.end(true) }

func (d *Disk) end(power bool) {
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

// Slow makes every write take this long.
func (d *Disk) Slow(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Hang holds every write up until Go.
func (d *Disk) Hang() { d.hold(&d.flow) }

// HangLog holds the log's syncs up until Go; terms and votes are kept.
func (d *Disk) HangLog() { d.hold(&d.logFlow) }

func (d *Disk) hold(flow *chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-*flow:
		*flow = make(chan struct{})
	default:
	}
}

// Go ends Hang and HangLog.
func (d *Disk) Go() {
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

// life is the disk as one life of its server sees it.
type life struct {
	d    *Disk
	gone chan struct{} // closed by Crash; what is written then is not kept
}

// sync waits until a write is on the disk, or nothing matters any more.
func (l *life) sync() {
	d := l.d
	d.mu.Lock()
	flow := d.flow
	wait := d.latency/2 + time.Duration(d.rng.Int64N(int64(d.latency)+1))
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
