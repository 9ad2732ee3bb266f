package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// place stands for the file of a log. It records each write and each close, and says which opening of the
// file they belong to.
type place struct {
	told []string
	hold chan struct{} // unless nil, a write waits for a value
	shut error         // the error of each opening
	full error         // the error of each write
}

// opening is the place after it was opened for the nth time.
type opening struct {
	*place
	n int
}

func (o opening) Write(b []byte) (int, error) {
	if o.hold != nil {
		<-o.hold
	}
	o.told = append(o.told, fmt.Sprintf("write %d to %d", len(b), o.n))
	return len(b), o.full
}

func (o opening) Close() error {
	o.told = append(o.told, fmt.Sprint("close ", o.n))
	return nil
}

// sinkTo starts a sink that writes to p.
func sinkTo(p *place) *sink {
	n := 0
	s := &sink{wake: make(chan struct{}, 1), done: make(chan struct{}), now: time.Now,
		room: func() error { return nil }, told: (&Log{now: time.Now}).appendLost,
		open: func() (io.WriteCloser, error) {
			n++
			return opening{p, n}, p.shut
		}}
	w, _ := s.open()
	go s.run(w)
	return s
}

// put adds a line of n bytes.
func (s *sink) put(n int) {
	s.add("", 1, func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), n)...) })
}

// settled() waits until the sink has nothing more to do. Then it compares the parameters with the sink's
// figures, and with the events of p since the last call.
func settled(t *testing.T, s *sink, p *place, written, lost int64, problem error, told ...string) {
	t.Helper()
	time.Sleep(2 * flushAfter)
	synctest.Wait()
	l := &Log{}
	s.mu.Lock()
	l.sink.written, l.sink.lost, l.sink.problem = s.written, s.lost, s.problem
	s.mu.Unlock()
	f := l.Figures()
	expect.Equal(t, f.Written, written, "written")
	expect.Equal(t, f.Lost, lost, "lost")
	expect.Equal(t, f.Problem, problem, "problem")
	expect.List(t, p.told, told)
	p.told = nil
}

// A slow disk loses only lines beyond the limit of waiting lines. They are counted, and the log continues.
func TestLinesBeyondTheBacklogAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{hold: make(chan struct{})}
		s := sinkTo(p)
		s.put(10)
		settled(t, s, p, 0, 0, nil) // the line is being written
		const large = maxWaiting / 4
		for range 3 {
			s.put(large)
		}
		s.put(large - 1)
		settled(t, s, p, 0, 0, nil)
		s.put(1) // with this line the backlog is full
		s.put(1)
		s.put(large)
		settled(t, s, p, 0, 2, nil)
		p.hold <- struct{}{}
		settled(t, s, p, 1, 2, nil, "write 10 to 1")
		p.hold <- struct{}{}
		settled(t, s, p, 6, 2, nil, fmt.Sprintf("write %d to 1", maxWaiting))
		close(p.hold)
		s.put(3)
		s.put(4)
		settled(t, s, p, 8, 2, nil, "write 7 to 1") // lines that come together are one write
		s.close()
		s.put(5)
		settled(t, s, p, 8, 3, nil, "close 1")
	})
}

// After an error the sink opens the log again for the next line, as often as it takes.
func TestLogIsOpenedAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, shut := errors.New("full"), errors.New("shut")
		p := &place{full: full}
		s := sinkTo(p)
		s.put(1)
		s.put(1)
		settled(t, s, p, 0, 2, full, "write 2 to 1", "close 1")
		p.full, p.shut = nil, shut
		s.put(3)
		settled(t, s, p, 0, 3, shut)
		p.shut = nil
		s.put(4)
		settled(t, s, p, 1, 3, nil, "write 4 to 3")
		s.reopenLog()
		settled(t, s, p, 1, 3, nil, "close 3")
		s.put(5)
		settled(t, s, p, 2, 3, nil, "write 5 to 4")
		p.shut = shut
		s.reopenLog()
		settled(t, s, p, 2, 3, shut, "close 4")
		s.put(6)
		s.close()
		settled(t, s, p, 2, 4, shut)
	})
}

// Lines that wait when the log closes are written.
func TestCloseWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &place{}
		s := sinkTo(p)
		s.put(7)
		s.close()
		settled(t, s, p, 1, 0, nil, "write 7 to 1", "close 1")
	})
}

func TestLogThatCannotBeOpenedIsRefused(t *testing.T) {
	_, err := Open(Options{Name: filepath.Join(t.TempDir(), "none", "log")})
	expect.Is(t, err, os.ErrNotExist)
}

// When a log to standard error is closed, standard error stays open.
func TestLogToStandardError(t *testing.T) {
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	defer file.Close()
	old := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = old }()
	opened(t, "stderr").Close()
	must.Get(file.WriteString("more\n"))(t)
	text := string(must.Get(os.ReadFile(file.Name()))(t))
	expect.Has(t, text, "operation=serverStart\tresult=success\n")
	expect.Has(t, text, "operation=serverStop\tresult=invoked\nmore\n")
}
