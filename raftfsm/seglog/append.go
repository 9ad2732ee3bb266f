package seglog

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hashicorp/raft"
)

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore: when it returns nil, the entries and all entries queued before them are
// durable.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	if err := fits(entries); err != nil {
		return err
	}
	l.writer <- struct{}{}
	defer func() { <-l.writer }()
	if err := l.drain(); err != nil {
		return err
	}
	return l.fail(l.write(entries))
}

// Append makes entries readable and queues them. If `lazily` is false, a goroutine writes them at once. If
// `lazily` is true, they are written by the next call that waits for them or stores more entries. The entries
// must follow the newest entry. The caller must not change them afterwards.
func (l *Log) Append(entries []*raft.Log, lazily bool) error {
	if len(entries) == 0 {
		return nil
	}
	if err := fits(entries); err != nil {
		return err
	}
	if !lazily {
		l.started.Do(func() { go l.writeQueue() })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	next := l.lastIndex() + 1
	if next == 1 {
		next = entries[0].Index // an empty log may begin at any index
	}
	for i, e := range entries {
		if e.Index != next+uint64(i) {
			return fmt.Errorf("cannot append entry %d: the log ends with entry %d", e.Index, next+uint64(i)-1)
		}
	}
	if len(l.queue) == 0 {
		l.durable.Store(next - 1)
	}
	l.queue = append(l.queue, entries...)
	if lazily {
		return nil
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
	return nil
}

// Durable returns an index. Every appended entry up to this index is on the disk.
func (l *Log) Durable() uint64 { return l.durable.Load() }

// Wait returns when every appended entry up to index is durable. If no goroutine is writing these entries,
// Wait writes them. After an error some of the entries may never be durable.
func (l *Log) Wait(index uint64) error {
	if l.durable.Load() >= index {
		return nil
	}
	select {
	case l.writer <- struct{}{}:
	case <-l.done:
		return errClosed
	}
	defer func() { <-l.writer }()
	if l.durable.Load() >= index {
		return nil
	}
	return l.drain()
}

// writeQueue writes the queued entries until the log is closed.
func (l *Log) writeQueue() {
	for {
		select {
		case <-l.done:
			return
		case <-l.kick:
		}
		// A goroutine in a long system call keeps its processor for a while, and delays the goroutines that
		// wait for it. So let the goroutines that send the entries to other servers run first.
		runtime.Gosched()
		select {
		case <-l.done:
			return
		case l.writer <- struct{}{}:
		}
		err := l.drain()
		<-l.writer
		if err != nil {
			return
		}
	}
}

// drain() writes all queued entries, with one sync. The caller holds l.writer.
func (l *Log) drain() error {
	for {
		l.mu.RLock()
		batch, err := l.queue, l.broken
		l.mu.RUnlock()
		if err != nil || len(batch) == 0 {
			return err
		}
		err = l.around("append", func() error { return l.write(batch) })
		if l.fail(err) != nil {
			return err
		}
	}
}

// fail() records the first error of an append. Every later append fails with the same error.
func (l *Log) fail(err error) error {
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
	return err
}

// write() appends a batch durably. If the queue is not empty, the batch must be its first entries. The caller
// holds l.writer.
func (l *Log) write(entries []*raft.Log) error {
	base := entries[0].Index
	s, err := l.tail(base)
	if err != nil {
		return err
	}
	buf := l.buf[:0]
	starts := make([]uint32, 0, len(entries))
	for i, e := range entries {
		if e.Index != base+uint64(i) {
			return fmt.Errorf("append entry %d after %d", e.Index, base+uint64(i)-1)
		}
		starts = append(starts, uint32(len(buf)))
		buf = appendRecord(buf, e, base, l.secret)
	}
	if cap(buf) <= 1<<20 {
		l.buf = buf
	}
	if s == nil || s.secret != l.secret || s.end+len(buf) > s.limit() {
		var empty []*segment // segments left by a larger batch that failed
		if s, empty, err = l.roll(base, len(buf)); err != nil {
			return err
		}
		if err := l.remove(empty); err != nil {
			return err
		}
	}
	for _, start := range starts {
		seal(buf[start:], s.end+int(start))
	}
	if _, err := s.file.WriteAt(buf, int64(s.end)); err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	if err := s.file.Datasync(); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	l.publish(s, starts, len(buf))
	if s.end > s.size/2 {
		l.makeSpare(min(2*s.size, l.o.FullSize))
	}
	return nil
}

// publish() adds a durable batch to the log.
func (l *Log) publish(s *segment, starts []uint32, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 {
		l.first = s.base + uint64(len(s.offsets))
	}
	for _, at := range starts {
		s.offsets = append(s.offsets, uint32(s.end)+at)
	}
	s.end += size
	if len(l.queue) == 0 {
		return
	}
	l.queue = l.queue[len(starts):]
	if len(l.queue) == 0 {
		l.queue = nil
		l.durable.Store(math.MaxUint64)
	} else {
		l.durable.Store(l.queue[0].Index - 1)
	}
}

// tail returns the segment for an append at index. It returns nil if the append needs a new segment. If index
// leaves a gap, tail empties the log first.
func (l *Log) tail(index uint64) (*segment, error) {
	l.mu.RLock()
	n, empty := len(l.segments), l.first == 0
	var s *segment
	if n > 0 {
		s = l.segments[n-1]
	}
	l.mu.RUnlock()
	switch {
	case s == nil || s.last()+1 == index:
		return s, nil
	case empty:
		return nil, l.dropAll()
	case s.last()+1 < index:
		if err := l.reset(); err != nil {
			return nil, err
		}
		return nil, l.dropAll()
	}
	return nil, fmt.Errorf("cannot append entry %d: the log ends with entry %d", index, s.last())
}

// roll() begins a new segment at the index `base`, with room for at least `need` bytes. The new segment
// supersedes all entries from that index on, in memory and on the disk. roll() returns the segments that are
// now wholly superseded; the caller removes them.
func (l *Log) roll(base uint64, need int) (s *segment, old []*segment, err error) {
	need += headerSize + endSize
	// The preparation of the spare may have failed long ago, for example because the disk was full. The log
	// needs a segment now, so it tries again.
	p := l.takeSpare(nil)
	if p.err != nil {
		p.f = nil
	}
	if p.f != nil && p.size < need {
		if err := discard(l.fs, p.f); err != nil {
			return nil, nil, err
		}
		p.f = nil
	}
	if p.f == nil {
		size := l.o.FirstSize
		for size < need {
			size *= 2
		}
		if p = l.prepare(size); p.err != nil {
			return nil, nil, fmt.Errorf("prepare a log segment: %w", p.err)
		}
	}
	if s, err = begin(l.fs, l.dir, p.f, p.size, l.seq, base, l.secret); err != nil {
		return nil, nil, fmt.Errorf("begin a log segment: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	if n := len(l.segments); n > 0 {
		l.files.release(l.segments[n-1])
	}
	var kept []*segment
	for _, o := range l.segments {
		if o.base >= base {
			old = append(old, o)
			continue
		}
		if o.last() >= base {
			o.end = int(o.offsets[base-o.base])
			o.offsets = o.offsets[:base-o.base]
		}
		kept = append(kept, o)
	}
	l.segments = append(kept, s)
	return s, old, nil
}

// prepare() makes a segment ready under a temporary name.
func (l *Log) prepare(size int) prepared {
	name := filepath.Join(l.dir, fmt.Sprintf("next-%d.tmp", l.spares.Add(1)))
	f, err := prepare(l.fs, name, size)
	return prepared{f, size, err}
}

// makeSpare starts to prepare the next segment, unless a segment is already being prepared.
func (l *Log) makeSpare(size int) {
	l.spareMu.Lock()
	defer l.spareMu.Unlock()
	if l.spare != nil || l.closed {
		return
	}
	ch := make(chan prepared, 1)
	l.spare = ch
	make := func() { ch <- l.prepare(size) }
	if l.o.InTurn {
		make()
	} else {
		go make()
	}
}

// takeSpare returns the spare segment, if there is one. If the segment is still being prepared, takeSpare
// waits until it is ready or the channel `enough` fires.
func (l *Log) takeSpare(enough <-chan time.Time) prepared {
	l.spareMu.Lock()
	ch := l.spare
	l.spare = nil
	l.spareMu.Unlock()
	if ch == nil {
		return prepared{}
	}
	select {
	case p := <-ch:
		return p
	case <-enough:
		return prepared{}
	}
}
