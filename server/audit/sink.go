package audit

import (
	"io"
	"os"
	"sync"
	"time"
)

// maxWaiting bounds the bytes that wait to be written. A slow or full disk costs lines beyond it,
// and never holds up a request.
const maxWaiting = 4 << 20

// sink writes lines to a file, standard error or syslog, by a goroutine of its own.
type sink struct {
	name string
	open func() (io.WriteCloser, error)

	mu      sync.Mutex
	waiting []byte
	lines   int64 // in waiting
	written int64
	lost    int64
	problem error
	reopen  bool
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

// start opens the log. An error means that it cannot be opened at all.
func (s *sink) start() error {
	s.open = opener(s.name)
	w, err := s.open()
	if err != nil {
		return err
	}
	s.wake, s.done = make(chan struct{}, 1), make(chan struct{})
	go s.run(w)
	return nil
}

// opener returns the function that opens a log by its name.
func opener(name string) func() (io.WriteCloser, error) {
	switch name {
	case "stderr":
		return func() (io.WriteCloser, error) { return stderr{}, nil }
	case "syslog":
		return openSyslog
	}
	return func() (io.WriteCloser, error) {
		return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
}

type stderr struct{}

func (stderr) Write(b []byte) (int, error) { return os.Stderr.Write(b) }
func (stderr) Close() error                { return nil }

// add has put append a line to what waits, if there is room.
func (s *sink) add(put func([]byte) []byte) {
	s.mu.Lock()
	if s.closed || len(s.waiting) >= maxWaiting {
		s.lost++
		s.mu.Unlock()
		return
	}
	first := len(s.waiting) == 0
	s.waiting = put(s.waiting)
	s.lines++
	s.mu.Unlock()
	if first {
		s.kick()
	}
}

func (s *sink) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flushAfter lets lines collect, so that many cost one write.
const flushAfter = 5 * time.Millisecond

// run writes what waits until the sink is closed. After an error it opens the log again, so that
// it goes on once the disk has room.
func (s *sink) run(w io.WriteCloser) {
	defer close(s.done)
	var spare []byte
	for closed := false; !closed; {
		<-s.wake
		time.Sleep(flushAfter)
		s.mu.Lock()
		batch, lines, reopen := s.waiting, s.lines, s.reopen
		s.waiting, s.lines, s.reopen, closed = spare[:0], 0, false, s.closed
		s.mu.Unlock()
		var err error
		if reopen || w == nil {
			if w != nil {
				_ = w.Close() // every line was written or counted as lost
			}
			if w, err = s.open(); err != nil {
				w = nil
			}
		}
		if err == nil && len(batch) > 0 {
			_, err = w.Write(batch)
		}
		s.mu.Lock()
		if s.problem = err; err == nil {
			s.written += lines
		} else {
			s.lost += lines
		}
		s.mu.Unlock()
		if err != nil && w != nil {
			_ = w.Close() // it is opened again
			w = nil
		}
		spare = batch
	}
	if w != nil {
		_ = w.Close()
	}
}

// reopenLog opens the log again, after a program has moved the file away.
func (s *sink) reopenLog() {
	s.mu.Lock()
	s.reopen = true
	s.mu.Unlock()
	s.kick()
}

// close writes what waits.
func (s *sink) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.kick()
	<-s.done
}
