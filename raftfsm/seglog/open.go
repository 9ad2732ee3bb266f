package seglog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/vfs"
)

// Open opens the log in dir, which must exist. An error that does not come from the file system means that
// acknowledged entries are damaged.
func Open(dir string, o Options) (*Log, error) {
	o = o.withDefaults()
	l := &Log{o: o, fs: o.FS, dir: dir, seq: 1, writer: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		done:   make(chan struct{}),
		around: func(_ string, write func() error) error { return write() }, files: files{fs: o.FS}}
	l.durable.Store(math.MaxUint64)
	random := make([]byte, 8)
	if _, err := io.ReadFull(o.Rand, random); err != nil {
		return nil, err
	}
	l.secret = binary.BigEndian.Uint64(random) | 1 // odd, because 0 means no secret
	// A killed process may have begun a segment whose name is not durable yet.
	if err := l.fs.SyncDir(dir); err != nil {
		return nil, err
	}
	all, err := l.fs.List(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		switch {
		case strings.HasSuffix(name, ".tmp"):
			if err := l.fs.Remove(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		case strings.HasSuffix(name, ".log"):
			names = append(names, name)
		}
	}
	if err := l.load(names); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// load() reads the segments back.
func (l *Log) load(names []string) error {
	segments, old, err := readSegments(l.fs, l.dir, names, func(f vfs.File, newest bool) error {
		if err := f.Sync(); err != nil || !newest {
			return err
		}
		return f.Forget()
	})
	if err != nil {
		return err
	}
	for _, s := range slices.Concat(segments, old) {
		l.seq = max(l.seq, s.seq+1)
	}
	l.segments = segments
	if err := l.remove(old); err != nil {
		return err
	}
	n := len(l.segments)
	if n == 0 {
		return nil
	}
	tail := l.segments[n-1]
	file, err := l.fs.Open(tail.name)
	if err != nil {
		return err
	}
	tail.file, tail.users = file, 1
	l.secret = cmp.Or(tail.secret, l.secret)
	if l.first = l.segments[0].base; tail.last() < l.first {
		l.first = 0
	}
	return tail.wipe(file)
}

// Close writes the queue and closes the files. If the disk hangs, Close gives up after closeTime, because the
// process must end anyway.
func (l *Log) Close() error {
	l.spareMu.Lock()
	l.closed = true
	l.spareMu.Unlock()
	enough := time.After(closeTime)
	select {
	case l.writer <- struct{}{}:
	case <-enough:
		l.stop.Do(func() { close(l.done) })
		_ = l.fail(errClosed)
		return errors.New("close the log: a write is still under way")
	}
	defer func() { <-l.writer }()
	var errs []error
	if p := l.takeSpare(enough); p.f != nil {
		errs = append(errs, discard(l.fs, p.f))
	}
	l.mu.RLock()
	broken := l.broken
	l.mu.RUnlock()
	if broken == nil {
		errs = append(errs, l.drain())
	}
	l.stop.Do(func() { close(l.done) })
	_ = l.fail(errClosed)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Concat(l.unused, l.segments) {
		errs = append(errs, l.files.close(s))
	}
	l.unused, l.segments, l.first, l.queue = nil, nil, 0, nil
	return errors.Join(errs...)
}

// closeTime is how long Close waits for a running write.
const closeTime = 2 * time.Second
