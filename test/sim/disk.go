package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm"
)

// Disk is what a server keeps between two lives. A write is seen by its own
// life at once, as through a page cache, and is on the disk when the call
// returns; until then a crash loses it, or all but its first part. Writes take
// time, and can be made to take longer or to hang.
type Disk struct {
	mu       sync.Mutex
	rng      *rand.Rand
	stores   *raftfsm.Stores // of the first life, for the identity
	log      logImage
	keys     map[string][]byte
	numbers  map[string]uint64
	snaps    []*snapshot // the newest first
	life     *life
	latency  time.Duration
	flow     chan struct{} // closed while writes are not held up
	underway map[*[]*raft.Log]bool
}

// NewDisk returns an empty disk.
func NewDisk(rng *rand.Rand) *Disk {
	d := &Disk{rng: rng, stores: raftfsm.NewMemoryStores(false), log: logImage{entries: map[uint64]*raft.Log{}},
		keys: map[string][]byte{}, numbers: map[string]uint64{}, latency: 500 * time.Microsecond,
		flow: make(chan struct{}), underway: map[*[]*raft.Log]bool{}}
	close(d.flow)
	return d
}

// Stores begins a new life with what is on the disk.
func (d *Disk) Stores() *raftfsm.Stores {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = &life{d: d, gone: make(chan struct{}), log: d.log.clone(), keys: maps.Clone(d.keys), numbers: maps.Clone(d.numbers)}
	s := *d.stores
	s.Log, s.Stable, s.Snapshots = d.life, d.life, snapshots{d.life}
	return &s
}

// Crash ends the life, as the end of its process or of its power does: writes
// under way are lost, or kept up to some point.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return
	}
	for batch := range d.underway {
		d.log.store((*batch)[:d.rng.IntN(len(*batch)+1)])
		delete(d.underway, batch)
	}
	close(d.life.gone)
	d.life = nil
}

// Slow makes every write take this long.
func (d *Disk) Slow(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Hang holds every write up until Go.
func (d *Disk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.flow:
		d.flow = make(chan struct{})
	default:
	}
}

// Go ends Hang.
func (d *Disk) Go() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.flow:
	default:
		close(d.flow)
	}
}

// logImage is a log without gaps.
type logImage struct {
	first, last uint64
	entries     map[uint64]*raft.Log
}

func (l *logImage) clone() logImage {
	return logImage{l.first, l.last, maps.Clone(l.entries)}
}

func (l *logImage) store(logs []*raft.Log) {
	for _, e := range logs {
		e := *e
		e.Data = bytes.Clone(e.Data)
		if l.last != 0 && e.Index != l.last+1 {
			panic(fmt.Sprintf("entry %d behind %d", e.Index, l.last))
		}
		if l.first == 0 {
			l.first = e.Index
		}
		l.last = e.Index
		l.entries[e.Index] = &e
	}
}

func (l *logImage) remove(from, to uint64) {
	for i := max(from, l.first); i <= to && i <= l.last; i++ {
		delete(l.entries, i)
	}
	switch {
	case from <= l.first && to >= l.last:
		l.first, l.last = 0, 0
	case from <= l.first:
		l.first = max(l.first, to+1)
	case to >= l.last:
		l.last = min(l.last, from-1)
	}
}

// life is the disk as one life of its server sees it.
type life struct {
	d       *Disk
	gone    chan struct{} // closed by Crash; what is written then is not kept
	log     logImage
	keys    map[string][]byte
	numbers map[string]uint64
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

// IsMonotonic implements raft.MonotonicLogStore.
func (l *life) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (l *life) FirstIndex() (uint64, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	return l.log.first, nil
}

// LastIndex implements raft.LogStore.
func (l *life) LastIndex() (uint64, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	return l.log.last, nil
}

// GetLog implements raft.LogStore.
func (l *life) GetLog(index uint64, to *raft.Log) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	e, ok := l.log.entries[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*to = *e
	return nil
}

// StoreLog implements raft.LogStore.
func (l *life) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore.
func (l *life) StoreLogs(logs []*raft.Log) error {
	d := l.d
	d.mu.Lock()
	l.log.store(logs)
	if l.alive() {
		d.underway[&logs] = true
	}
	d.mu.Unlock()
	l.sync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.underway[&logs] {
		delete(d.underway, &logs)
		d.log.store(logs)
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (l *life) DeleteRange(from, to uint64) error {
	l.sync()
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.log.remove(from, to)
	if l.alive() {
		l.d.log.remove(from, to)
	}
	return nil
}

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
	l.sync()
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.numbers[string(k)] = v
	if l.alive() {
		l.d.numbers[string(k)] = v
	}
	return nil
}

// GetUint64 implements raft.StableStore.
func (l *life) GetUint64(k []byte) (uint64, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	v, ok := l.numbers[string(k)]
	if !ok {
		return 0, errNoKey
	}
	return v, nil
}

// snapshot is a complete one.
type snapshot struct {
	meta raft.SnapshotMeta
	data []byte
}

// snapshots are the snapshots of a life. One that is not closed does not
// exist.
type snapshots struct{ l *life }

// Create implements raft.SnapshotStore.
func (s snapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &snapshotSink{l: s.l, meta: raft.SnapshotMeta{Version: v, ID: fmt.Sprintf("%d-%d-%d", term, index, time.Now().UnixNano()),
		Index: index, Term: term, Configuration: c, ConfigurationIndex: ci}}, nil
}

// List implements raft.SnapshotStore.
func (s snapshots) List() (list []*raft.SnapshotMeta, err error) {
	s.l.d.mu.Lock()
	defer s.l.d.mu.Unlock()
	for _, snap := range s.l.d.snaps {
		meta := snap.meta
		list = append(list, &meta)
	}
	return list, nil
}

// Open implements raft.SnapshotStore.
func (s snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.l.d.mu.Lock()
	defer s.l.d.mu.Unlock()
	for _, snap := range s.l.d.snaps {
		if snap.meta.ID == id {
			meta := snap.meta
			return &meta, io.NopCloser(bytes.NewReader(snap.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("snapshot %s is gone", id)
}

type snapshotSink struct {
	l    *life
	meta raft.SnapshotMeta
	buf  bytes.Buffer
}

func (s *snapshotSink) Write(b []byte) (int, error) { return s.buf.Write(b) }
func (s *snapshotSink) ID() string                  { return s.meta.ID }
func (s *snapshotSink) Cancel() error               { return nil }

// Close makes the snapshot exist; the two newest are kept.
func (s *snapshotSink) Close() error {
	s.l.sync()
	d := s.l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.l.alive() {
		s.meta.Size = int64(s.buf.Len())
		d.snaps = append([]*snapshot{{s.meta, s.buf.Bytes()}}, d.snaps...)
		d.snaps = d.snaps[:min(len(d.snaps), 2)]
	}
	return nil
}
