package seglog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// Segments begin small, so that a new server starts at once, and double.
const (
	firstSize = 1 << 20
	fullSize  = 32 << 20
)

// Log is a raft.LogStore. Entries are contiguous; appending behind a gap drops
// everything before it, which a snapshot covers.
type Log struct {
	dir string

	write sync.Mutex // held for the whole of an append or a truncation
	buf   []byte     // under write

	mu       sync.RWMutex // of what follows; appends take it only to publish
	segments []*segment   // oldest first; the last is written to
	first    uint64       // 0: the log is empty
	seq      uint64       // of the next segment

	spareMu sync.Mutex
	spare   chan prepared // being made ready; nil: nothing is
	closed  bool
}

type prepared struct {
	f    *os.File
	size int
	err  error
}

// Open opens the log in dir, which must exist. An error other than of the
// file system means that acknowledged entries are damaged.
func Open(dir string) (*Log, error) {
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil {
		return nil, err
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &Log{dir: dir, seq: 1}
	if err := l.load(names); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// load reads the segments back, newest first, because a segment says what of
// the ones before it still counts.
func (l *Log) load(names []string) error {
	var next uint64
	for i := len(names) - 1; i >= 0; i-- {
		seq, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(names[i]), ".log"), 10, 64)
		if err != nil {
			return fmt.Errorf("%s is not a segment of the log", names[i])
		}
		l.seq = max(l.seq, seq+1)
		base, err := baseOf(names[i])
		if err != nil {
			return err
		}
		if next != 0 && base >= next { // superseded as a whole; its removal was interrupted
			if err := os.Remove(names[i]); err != nil {
				return err
			}
			continue
		}
		s, err := load(names[i], seq, next)
		if err != nil {
			return err
		}
		l.segments = slices.Insert(l.segments, 0, s)
		next = base
	}
	if n := len(l.segments); n > 0 {
		if err := l.segments[n-1].wipe(); err != nil {
			return err
		}
		l.first = l.segments[0].base
		if l.lastIndex() < l.first {
			l.first = 0
		}
	}
	return nil
}

func baseOf(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	base, err := readHeader(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return base, nil
}

// IsMonotonic tells raft that there are no gaps.
func (l *Log) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.first, nil
}

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first == 0 {
		return 0, nil
	}
	return l.lastIndex(), nil
}

// lastIndex is the index before the one to be appended next, as the last
// segment knows it; the caller holds mu.
func (l *Log) lastIndex() uint64 { return l.segments[len(l.segments)-1].last() }

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, out *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.first == 0 || index < l.first || index > l.lastIndex() {
		return raft.ErrLogNotFound
	}
	i, _ := slices.BinarySearchFunc(l.segments, index+1, func(s *segment, want uint64) int {
		if s.base < want {
			return -1
		}
		return 1
	})
	s := l.segments[i-1]
	k := index - s.base
	at := int(s.offsets[k])
	end := s.end
	if int(k)+1 < len(s.offsets) {
		end = int(s.offsets[k+1])
	}
	b := make([]byte, end-at)
	if _, err := s.f.ReadAt(b, int64(at)); err != nil {
		return fmt.Errorf("read log entry %d: %w", index, err)
	}
	r, err := parse(b, at)
	if err == nil {
		err = decode(b[:r.size], out)
	}
	if err == nil && out.Index != index {
		err = errDamaged
	}
	if err != nil {
		return fmt.Errorf("log entry %d in %s: %w", index, segmentName(s.seq), err)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore: when it returns nil the entries are
// durable.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	l.write.Lock()
	defer l.write.Unlock()
	base := entries[0].Index
	s, err := l.tail(base)
	if err != nil {
		return err
	}
	buf := l.buf[:0]
	starts := make([]uint32, 0, len(entries))
	for i, e := range entries {
		if e.Index != base+uint64(i) {
			return fmt.Errorf("append entry %d behind %d", e.Index, base+uint64(i)-1)
		}
		starts = append(starts, uint32(len(buf)))
		buf = appendRecord(buf, e, base)
	}
	if cap(buf) <= 1<<20 {
		l.buf = buf
	}
	if s == nil || s.end+len(buf) > s.size {
		if s, err = l.roll(base, len(buf)); err != nil {
			return err
		}
	}
	if _, err := s.f.WriteAt(buf, int64(s.end)); err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	if err := datasync(s.f); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	l.mu.Lock()
	for _, at := range starts {
		s.offsets = append(s.offsets, uint32(s.end)+at)
	}
	s.end += len(buf)
	if l.first == 0 {
		l.first = base
	}
	l.mu.Unlock()
	if s.end > s.size/2 {
		l.makeSpare(min(2*s.size, fullSize))
	}
	return nil
}

// tail returns the segment that an append at index goes to, nil if it needs a
// new one. An append behind a gap empties the log first.
func (l *Log) tail(index uint64) (*segment, error) {
	l.mu.RLock()
	n := len(l.segments)
	var s *segment
	if n > 0 {
		s = l.segments[n-1]
	}
	l.mu.RUnlock()
	switch {
	case s == nil || s.last()+1 == index:
		return s, nil
	case s.last()+1 < index:
		return nil, l.reset()
	}
	return nil, fmt.Errorf("append entry %d, but the log reaches to %d", index, s.last())
}

// roll begins a new segment at base with room for at least need bytes.
func (l *Log) roll(base uint64, need int) (*segment, error) {
	need += headerSize
	p := l.takeSpare()
	if p.err != nil {
		return nil, fmt.Errorf("prepare a log segment: %w", p.err)
	}
	if p.f != nil && p.size < need {
		if err := discard(p.f); err != nil {
			return nil, err
		}
		p.f = nil
	}
	if p.f == nil {
		p.size = firstSize
		for p.size < need {
			p.size *= 2
		}
		if p.f, p.err = prepare(l.dir, p.size); p.err != nil {
			return nil, fmt.Errorf("prepare a log segment: %w", p.err)
		}
	}
	s, err := begin(l.dir, p.f, p.size, l.seq, base)
	if err != nil {
		return nil, fmt.Errorf("begin a log segment: %w", err)
	}
	l.mu.Lock()
	l.seq++
	l.segments = append(l.segments, s)
	l.mu.Unlock()
	return s, nil
}

// makeSpare begins to prepare the next segment, unless that is under way.
func (l *Log) makeSpare(size int) {
	l.spareMu.Lock()
	defer l.spareMu.Unlock()
	if l.spare != nil || l.closed {
		return
	}
	ch := make(chan prepared, 1)
	l.spare = ch
	go func() {
		f, err := prepare(l.dir, size)
		ch <- prepared{f, size, err}
	}()
}

// takeSpare returns the prepared segment, if there is one, waiting for it to
// be ready.
func (l *Log) takeSpare() prepared {
	l.spareMu.Lock()
	ch := l.spare
	l.spare = nil
	l.spareMu.Unlock()
	if ch == nil {
		return prepared{}
	}
	return <-ch
}

// DeleteRange implements raft.LogStore. The range must reach to one end of the
// log.
func (l *Log) DeleteRange(from, to uint64) error {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.RLock()
	first := l.first
	var last uint64
	if first != 0 {
		last = l.lastIndex()
	}
	l.mu.RUnlock()
	switch {
	case first == 0 || from > to || to < first || from > last:
		return nil
	case from <= first && to >= last:
		return l.reset()
	case from <= first:
		return l.cutHead(to + 1)
	case to >= last:
		return l.cutTail(from)
	}
	return fmt.Errorf("delete log entries %d to %d out of %d to %d: not at an end", from, to, first, last)
}

// reset removes everything, oldest first, so that a crash leaves a log that
// ends where it ended.
func (l *Log) reset() error {
	l.mu.Lock()
	old := l.segments
	l.segments, l.first = nil, 0
	l.mu.Unlock()
	return l.remove(old)
}

func (l *Log) cutHead(first uint64) error {
	l.mu.Lock()
	var old []*segment
	for len(l.segments) > 1 && l.segments[1].base <= first {
		old = append(old, l.segments[0])
		l.segments = l.segments[1:]
	}
	l.first = first
	l.mu.Unlock()
	return l.remove(old)
}

// cutTail removes the entries from index on: whole segments, newest first,
// then the rest by beginning a segment that supersedes it.
func (l *Log) cutTail(from uint64) error {
	l.mu.Lock()
	var old []*segment
	for n := len(l.segments); l.segments[n-1].base >= from; n-- {
		old = append(old, l.segments[n-1])
		l.segments = l.segments[:n-1]
	}
	l.mu.Unlock()
	if err := l.remove(old); err != nil {
		return err
	}
	l.mu.Lock()
	s := l.segments[len(l.segments)-1]
	cut := s.last() >= from
	if cut {
		s.end = int(s.offsets[from-s.base])
		s.offsets = s.offsets[:from-s.base]
	}
	l.mu.Unlock()
	if !cut {
		return nil
	}
	_, err := l.roll(from, 0)
	return err
}

func (l *Log) remove(old []*segment) error {
	var errs []error
	for _, s := range old {
		errs = append(errs, s.f.Close(), os.Remove(filepath.Join(l.dir, segmentName(s.seq))))
	}
	if len(old) > 0 {
		errs = append(errs, syncDir(l.dir))
	}
	return errors.Join(errs...)
}

// Close closes the files. Everything stored is durable already.
func (l *Log) Close() error {
	l.spareMu.Lock()
	l.closed = true
	l.spareMu.Unlock()
	var errs []error
	if p := l.takeSpare(); p.f != nil {
		errs = append(errs, discard(p.f))
	}
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		errs = append(errs, s.f.Close())
	}
	l.segments, l.first = nil, 0
	return errors.Join(errs...)
}
