package audit

import (
	"io"
	"os"
	"sync"
	"time"
)

// maxWaiting bounds the bytes that wait to be written, and maxBulk those that the ends of sessions
// leave to be written. A slow or full disk costs lines beyond them, and never holds up a request.
const (
	maxWaiting = 4 << 20
	maxBulk    = 32 << 20
)

// sink writes lines to a file, standard error or syslog, by a goroutine of its own.
type sink struct {
	open func() (io.WriteCloser, error)
	room func() error // why nothing may be written; nil: it may
	now  func() time.Time
	told func(b []byte, addr string, lost int64) []byte // appends a line about lost ones

	mu      sync.Mutex
	waiting []byte
	lines   int64 // in waiting
	bulk    []bulk
	bulked  int // bytes of bulk
	shares  map[string]*share
	swept   time.Time // the shares
	written int64
	lost    int64
	lostAt  time.Time
	problem error
	reopen  bool
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

// bulk is many lines that one event makes. They are put together when they are written.
type bulk struct {
	lines int
	size  int // of what is kept for them
	put   func(b []byte, line int) []byte
}

// start opens the log. An error means that it cannot be opened at all.
func (s *sink) start() error {
	w, err := s.open()
	if err != nil {
		return err
	}
	s.wake, s.done = make(chan struct{}, 1), make(chan struct{})
	go s.run(w)
	return nil
}

type stderr struct{}

func (stderr) Write(b []byte) (int, error) { return os.Stderr.Write(b) }
func (stderr) Close() error                { return nil }

// add has put append a line to what waits, if there is room and the address has a share left. A byte
// of the line counts weight times.
func (s *sink) add(addr string, weight int64, put func([]byte) []byte) {
	now := s.now()
	s.mu.Lock()
	sh := s.shareOf(addr, now)
	if s.closed || len(s.waiting) >= maxWaiting || sh != nil && sh.left <= 0 {
		s.lose(1, now)
		if sh != nil {
			sh.lost++
		}
		s.mu.Unlock()
		return
	}
	before := len(s.waiting)
	s.waiting = put(s.waiting)
	s.lines++
	if sh != nil {
		sh.left -= weight * int64(len(s.waiting)-before)
	}
	s.mu.Unlock()
	if before == 0 {
		s.kick()
	}
}

// addBulk keeps lines to be written behind those that wait, if there is room.
func (s *sink) addBulk(b bulk) {
	s.mu.Lock()
	if s.closed || s.bulked >= maxBulk {
		s.lose(int64(b.lines), s.now())
	} else {
		s.bulk = append(s.bulk, b)
		s.bulked += b.size
	}
	s.mu.Unlock()
	s.kick()
}

func (s *sink) lose(lines int64, now time.Time) {
	s.lost += lines
	s.lostAt = now
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
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var spare []byte
	for closed := false; !closed; {
		select {
		case <-s.wake:
			time.Sleep(flushAfter)
		case <-tick.C:
		}
		s.mu.Lock()
		s.sweep(s.now())
		batch, lines, bulks, reopen := s.waiting, s.lines, s.bulk, s.reopen
		s.waiting, s.lines, s.bulk, s.reopen, closed = spare[:0], 0, nil, false, s.closed
		s.mu.Unlock()
		if reopen && w != nil {
			_ = w.Close() // every line was written or counted as lost
			w = nil
		}
		if reopen || lines > 0 || len(bulks) == 0 && w == nil {
			w = s.write(w, batch, lines)
		}
		batch = batch[:0]
		for _, b := range bulks {
			n := int64(0)
			for i := range b.lines {
				batch, n = b.put(batch, i), n+1
				if len(batch) >= 1<<20 {
					w = s.write(w, batch, n)
					batch, n = batch[:0], 0
				}
			}
			w = s.write(w, batch, n)
			batch = batch[:0]
			s.mu.Lock()
			s.bulked -= b.size
			s.mu.Unlock()
		}
		spare = batch
	}
	if w != nil {
		_ = w.Close()
	}
}

// write writes lines to the log, which it opens if w is nil, and returns the log; nil: the next call
// opens it.
func (s *sink) write(w io.WriteCloser, batch []byte, lines int64) io.WriteCloser {
	var err error
	if w == nil {
		if w, err = s.open(); err != nil {
			w = nil
		}
	}
	if err == nil && len(batch) > 0 {
		if err = s.room(); err == nil {
			_, err = w.Write(batch)
		}
	}
	s.mu.Lock()
	if s.problem = err; err == nil {
		s.written += lines
	} else if lines > 0 {
		s.lose(lines, s.now())
	}
	s.mu.Unlock()
	if err != nil && w != nil {
		_ = w.Close()
		w = nil
	}
	return w
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
