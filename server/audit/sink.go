package audit

import (
	"io"
	"os"
	"sync"
	"time"
)

// Bounds on lines that wait to be written, in bytes: maxBulk for lines about ends of sessions, and maxWaiting
// for all others. Lines beyond them are lost, for example if the disk is full or slow. No request ever waits.
const (
	maxWaiting = 4 << 20
	maxBulk    = 32 << 20
)

// sink writes lines to a file, standard error or syslog, by a goroutine of its own.
type sink struct {
	open func() (io.WriteCloser, error)
	room func() error // returns an error while nothing may be written; nil: writing is always allowed
	now  func() time.Time
	told func(b []byte, addr string, lost int64) []byte // appends a line that says how many lines were lost

	mu      sync.Mutex
	waiting []byte
	lines   int64 // how many lines are in `waiting`
	bulk    []bulk
	bulked  int // bytes of memory that `bulk` takes
	shares  map[string]*share
	swept   time.Time // when sweep() last went through `shares`
	written int64
	lost    int64
	lostAt  time.Time
	problem error
	reopen  bool

	outgrows error // why the file has grown beyond its size limit, although lines are written
	closed   bool
	wake     chan struct{}
	done     chan struct{}
}

// bulk is an event that causes many lines. Its lines are made only when they are written.
type bulk struct {
	lines int
	size  int // bytes that the bulk takes in memory
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

// add calls put(), which appends a line to those that wait. It calls it only if there is room, and if the
// address has some of its share left. The line's length counts `weight` times.
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

// addBulk keeps a bulk if there is room. Its lines are written after those that wait.
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

// flushAfter is how long the sink collects lines, so that it writes many at once.
const flushAfter = 5 * time.Millisecond

// run writes the lines that wait, until the sink is closed. If a write fails, it opens the log again for the
// next one: the disk may then have room.
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
			_ = w.Close() // an error changes nothing: every line is counted as written or as lost
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

// write writes lines to the log w, which it opens if w is nil. It returns the log for the next call, or nil
// if it must be opened again.
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
		if l, ok := w.(interface{ outgrows() error }); ok {
			s.outgrows = l.outgrows()
		}
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

// reopenLog opens the log again, after another program has moved the file away.
func (s *sink) reopenLog() {
	s.mu.Lock()
	s.reopen = true
	s.mu.Unlock()
	s.kick()
}

// close writes the waiting lines and ends the goroutine.
func (s *sink) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.kick()
	<-s.done
}
