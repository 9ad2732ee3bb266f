package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/test/simdisk"
)

// Disk is what a server keeps between two lives: a real data directory, with
// identity, log and snapshots, on files of a simulated disk that loses any part
// of what was not synced. Terms and votes are on the disk when the call
// returns, and lost before: bolt maps its file into memory, which cannot be
// simulated. Writes take time, and can be made to take longer or to hang.
type Disk struct {
	mu      sync.Mutex
	rng     *rand.Rand
	files   *simdisk.Disk
	keys    map[string][]byte // of the stable store
	life    *life
	latency time.Duration
	flow    chan struct{} // closed while writes are not held up
	logFlow chan struct{} // closed while syncs of the log are not
}

// dataDir is where every server's data directory is, on its own disk.
const dataDir = "/var/zlockd"

// NewDisk returns an empty disk.
func NewDisk(rng *rand.Rand) *Disk {
	d := &Disk{rng: rng, files: simdisk.New(rand.New(rand.NewPCG(rng.Uint64(), 5))), keys: map[string][]byte{},
		latency: 500 * time.Microsecond, flow: make(chan struct{}), logFlow: make(chan struct{})}
	close(d.flow)
	close(d.logFlow)
	d.files.LeaveGhosts()
	d.files.OnOp(func(op simdisk.Op) error {
		if op.Kind != "sync" && op.Kind != "syncdir" {
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
	l := &life{d: d, gone: make(chan struct{}), keys: maps.Clone(d.keys)}
	d.life = l
	return &disk.Files{FS: d.files.Mount(), Stable: l, Log: seglog.Options{FirstSize: 32 << 10, FullSize: 512 << 10}}
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
	keys map[string][]byte
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

// alive is asked with the disk locked.
func (l *life) alive() bool { return l.d.life == l }

var errNoKey = errors.New("not found")

// Set implements raft.StableStore.
func (l *life) Set(k, v []byte) error {
	l.sync()
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.keys[string(k)] = bytes.Clone(v)
	if l.alive() {
		l.d.keys[string(k)] = bytes.Clone(v)
	}
	return nil
}

// Get implements raft.StableStore.
func (l *life) Get(k []byte) ([]byte, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	v, ok := l.keys[string(k)]
	if !ok {
		return nil, errNoKey
	}
	return v, nil
}

// SetUint64 implements raft.StableStore.
func (l *life) SetUint64(k []byte, v uint64) error {
	return l.Set(k, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 implements raft.StableStore.
func (l *life) GetUint64(k []byte) (uint64, error) {
	b, err := l.Get(k)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}
