package seglog

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// The first segment is small, so that a new server starts at once. Each further segment is usually twice as
// large as the previous one, up to fullSize. The log removes only whole segments and keeps a spare segment
// ready, so on the disk it may take three full segments more than its entries need.
const (
	firstSize = 1 << 20
	fullSize  = 16 << 20
)

// Options configure a log. The zero value is for production.
type Options struct {
	FS        vfs.FS // nil: the operating system's file system
	FirstSize int    // size of the first segment, and of a segment that an append must wait for
	FullSize  int    // largest size of a segment
	InTurn    bool   // prepare segments within an append, not in another goroutine

	Rand io.Reader // source of a new log's secret; nil: the operating system's source
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	o.FirstSize = cmp.Or(o.FirstSize, firstSize)
	o.FullSize = cmp.Or(o.FullSize, fullSize)
	return o
}

// Log is a raft.LogStore. Entries are contiguous; an append after a gap drops all earlier entries, which a
// snapshot covers.
type Log struct {
	o      Options
	fs     vfs.FS
	dir    string
	secret uint64 // the secret of the segments that this log begins

	writer chan struct{} // holds a value during a whole append or truncation, as a lock
	buf    []byte        // guarded by writer
	unused []*segment    // guarded by writer: segments that have left the log and must be removed, oldest first

	mu       sync.RWMutex // guards the fields below; an append locks it only in publish()
	segments []*segment   // oldest first; appends go to the last, which stays open
	first    uint64       // index of the first entry; 0: no entry has been written
	seq      uint64       // number of the next segment
	queue    []*raft.Log  // entries that follow those of the segments: they can be read, but are not written yet
	broken   error        // error of the first append that failed, or errClosed

	durable atomic.Uint64 // see Durable; changed while mu is held
	kick    chan struct{} // holds a token while the queue may hold entries
	started sync.Once     // starts the goroutine that writes the queue
	around  func(what string, write func() error) error
	done    chan struct{} // closed by Close
	stop    sync.Once     // closes done

	files  files
	spares atomic.Int64 // number of spares so far, for their names

	spareMu sync.Mutex
	spare   chan prepared // delivers the segment in preparation; nil: no segment is in preparation
	closed  bool
}

type prepared struct {
	f    vfs.File
	size int
	err  error
}

var errClosed = errors.New("the log is closed")

// Around makes f run every write of the queue, so that f can time the write and see its error. Call it before
// the first Append.
func (l *Log) Around(f func(what string, write func() error) error) { l.around = f }

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first == 0 && len(l.queue) > 0 {
		return l.queue[0].Index, nil
	}
	return l.first, nil
}

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastIndex(), nil
}

// lastIndex returns the index of the newest entry. It returns 0 if the log is empty. The caller holds mu.
func (l *Log) lastIndex() uint64 {
	switch {
	case len(l.queue) > 0:
		return l.queue[len(l.queue)-1].Index
	case l.first == 0:
		return 0
	}
	return l.segments[len(l.segments)-1].last()
}

// GetLog implements raft.LogStore. It reads the disk without the log's lock, so a read that hangs delays no
// append.
func (l *Log) GetLog(index uint64, out *raft.Log) error {
	for {
		queued, s, at, size := l.find(index)
		switch {
		case queued != nil:
			*out = *queued
			return nil
		case s == nil:
			return raft.ErrLogNotFound
		}
		err := l.read(s, index, at, size, out)
		if err == nil || !l.files.dropped(s) {
			return err
		} // the segment was dropped during the read; another segment may have the entry now
	}
}

// find() returns a queued entry, or the segment that holds the entry and the entry's place in it.
func (l *Log) find(index uint64) (queued *raft.Log, s *segment, at, size int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n := uint64(len(l.queue)); n > 0 && index >= l.queue[0].Index && index < l.queue[0].Index+n {
		return l.queue[index-l.queue[0].Index], nil, 0, 0
	}
	if l.first == 0 || index < l.first || index > l.segments[len(l.segments)-1].last() {
		return nil, nil, 0, 0
	}
	s = l.segmentOf(index)
	at = int(s.offsets[index-s.base])
	return nil, s, at, s.endOf(index) - at
}

// read() reads one entry of a segment.
func (l *Log) read(s *segment, index uint64, at, size int, out *raft.Log) error {
	b := make([]byte, size)
	err := l.files.use(s, func(f vfs.File) error {
		_, err := f.ReadAt(b, int64(at))
		return err
	})
	if err != nil {
		return fmt.Errorf("read log entry %d: %w", index, err)
	}
	r, err := parse(b, at)
	if err == nil && r.index != index {
		err = errDamaged
	}
	if err == nil {
		err = decode(b[:r.size], out)
	}
	if err != nil {
		return fmt.Errorf("log entry %d in %s: %w", index, segmentName(s.seq), err)
	}
	return nil
}

// segmentOf returns the segment that holds an entry; the caller holds mu.
func (l *Log) segmentOf(index uint64) *segment {
	i, _ := slices.BinarySearchFunc(l.segments, index+1, func(s *segment, want uint64) int {
		if s.base < want {
			return -1
		}
		return 1
	})
	return l.segments[i-1]
}

// Within returns the smallest index for which the entries from this index to the newest take at most the
// given number of bytes on disk.
func (l *Log) Within(bytes int64) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	from := l.lastIndex() + 1
	for _, s := range slices.Backward(l.segments) {
		n := int64(s.end - headerSize)
		if n <= bytes {
			bytes -= n
			from = max(s.base, l.first)
			continue
		}
		k, _ := slices.BinarySearch(s.offsets, uint32(int64(s.end)-bytes))
		return max(s.base+uint64(k), l.first)
	}
	return from
}

// After returns how many bytes on disk the entries after index take.
func (l *Log) After(index uint64) (bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range slices.Backward(l.segments) {
		if s.last() <= index {
			break
		}
		from := headerSize
		if index >= s.base {
			from = s.endOf(index)
		}
		bytes += int64(s.end - from)
	}
	return bytes
}
