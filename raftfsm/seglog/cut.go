package seglog

import (
	"errors"
	"fmt"
)

// DeleteRange implements raft.LogStore. The range must reach to the start or the end of the log. DeleteRange
// writes the queue first.
//
// After a snapshot of a large state many segments must be removed, each with a sync. Appends may run between
// two removals.
func (l *Log) DeleteRange(from, to uint64) error {
	err := l.alone(func() error { return l.deleteRange(from, to) })
	for left := 1; err == nil && left > 0; {
		err = l.alone(func() (err error) {
			left, err = l.removeUnused()
			return err
		})
	}
	return err
}

// alone() writes the queue and then calls f, while appends wait.
func (l *Log) alone(f func() error) error {
	l.writer <- struct{}{}
	defer func() { <-l.writer }()
	if err := l.drain(); err != nil {
		return err
	}
	return l.fail(f())
}

func (l *Log) deleteRange(from, to uint64) error {
	l.mu.RLock()
	first, last := l.first, l.lastIndex()
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
	return fmt.Errorf("delete log entries %d to %d: the log has entries %d to %d, and only its first or last "+
		"entries can be deleted", from, to, first, last)
}

// cutTail removes the entries from the given index on. A new segment that begins at this index supersedes
// them. cutTail removes nothing before the new segment is durable, so after a crash the log is either uncut
// or cut as requested. If an older segment still has bytes after the cut, they are superseded for as long as
// that segment exists.
func (l *Log) cutTail(from uint64) error {
	if err := l.removeAllUnused(); err != nil {
		return err
	}
	_, old, err := l.roll(from, 0)
	if err != nil {
		return err
	}
	return l.remove(old)
}

// reset() removes all entries. An empty segment stays in their place.
func (l *Log) reset() error {
	l.mu.RLock()
	base := l.segments[0].base
	l.mu.RUnlock()
	if err := l.cutTail(base); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = 0
	return nil
}

// dropAll removes the segments of a log without entries, because the next entry does not follow their end.
func (l *Log) dropAll() error {
	if err := l.removeAllUnused(); err != nil {
		return err
	}
	l.mu.Lock()
	old := l.segments
	l.segments, l.first = nil, 0
	l.mu.Unlock()
	return l.remove(old)
}

// cutHead drops the segments that hold no entry with an index of at least `first`.
func (l *Log) cutHead(first uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.segments) > 1 && l.segments[1].base <= first {
		l.unused = append(l.unused, l.segments[0])
		l.segments = l.segments[1:]
	}
	l.first = first
	return nil
}

// removeUnused removes the oldest of the segments that are no longer in the log, and returns how many are
// left. Each removal is durable before the next: if a crash left a segment, but not the newer segment that
// supersedes its end, truncated entries would come back.
func (l *Log) removeUnused() (left int, err error) {
	if len(l.unused) == 0 {
		return 0, nil
	}
	err = l.remove(l.unused[:1])
	l.unused = l.unused[1:]
	return len(l.unused), err
}

// removeAllUnused removes all segments that are no longer in the log. It must be called before the log's end
// is cut.
func (l *Log) removeAllUnused() (err error) {
	for left := 1; err == nil && left > 0; {
		left, err = l.removeUnused()
	}
	return err
}

// remove() removes segments that are no longer part of the log, durably.
func (l *Log) remove(old []*segment) error {
	if len(old) == 0 {
		return nil
	}
	var errs []error
	for _, s := range old {
		errs = append(errs, l.files.close(s), l.fs.Remove(s.name))
	}
	return errors.Join(append(errs, l.fs.SyncDir(l.dir))...)
}
