package outbox

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// sink accepts bytes until it fails, but at most `most` of them in each write.
type sink struct {
	net.Conn
	most    int // bytes that a write accepts; 0: any number
	fails   error
	got     []byte
	sizes   []int // sizes of the writes
	closed  int
	halves  int // how often the writing side was closed
	cannot  error
	reading []time.Time // read deadlines that were set
}

func (s *sink) Write(b []byte) (int, error) {
	s.sizes = append(s.sizes, len(b))
	n := len(b)
	if s.most > 0 {
		n = min(n, s.most)
	}
	s.got = append(s.got, b[:n]...)
	if n < len(b) {
		return n, os.ErrDeadlineExceeded
	}
	return n, s.fails
}

func (s *sink) Close() error                       { s.closed++; return nil }
func (s *sink) CloseWrite() error                  { s.halves++; return s.cannot }
func (s *sink) SetWriteDeadline(time.Time) error   { return nil }
func (s *sink) SetReadDeadline(at time.Time) error { s.reading = append(s.reading, at); return nil }

// mute is a connection whose writing side cannot be closed alone.
type mute struct{ *sink }

func (mute) CloseWrite() {}

// A flush writes the waiting bytes unless another flush does. After the last frame it closes the writing
// side.
func TestFlushesOfAnOutbox(t *testing.T) {
	for _, x := range []struct {
		name     string
		waits    string
		state    state
		flushing bool
		got      string
		halves   int
	}{
		{name: "nothing waits"},
		{name: "something waits", waits: "frame", got: "frame"},
		{name: "another flush is under way", waits: "frame", flushing: true},
		{name: "the last frame", waits: "frame", state: ending, got: "frame", halves: 1},
		{name: "no last frame", state: ending, halves: 1},
		{name: "it is dead", waits: "frame", state: dead},
	} {
		_, c := quiet(t, 0, 0, 0)
		to := &sink{}
		c.NC = to
		c.state, c.flushing = x.state, x.flushing
		if x.waits != "" {
			c.Append([]byte(x.waits))
		}
		c.Flush()
		expect.Equal(t, string(to.got), x.got, "%s: string(to.got)", x.name)
		expect.Equal(t, to.halves, x.halves, "%s: to.halves", x.name)
		if expect.Equal(t, len(to.reading), x.halves, "%s: len(to.reading)", x.name) {
			expect.Equal(t, to.closed, 0, "%s: to.closed", x.name)
		}
		expect.Equal(t, c.flushing, x.flushing, "%s: c.flushing", x.name)
		expect.That(t, !c.own, "%s: the flush goes on: want !c.own", x.name)
		expect.Equal(t, c.shut, x.halves > 0, "%s: c.shut", x.name)
		if x.halves > 0 { // flush again, as a late outcome may cause it
			c.Flush()
			expect.Equal(t, to.halves, 1, "%s: to.halves", x.name)
			expect.That(t, c.shut, "%s: closed again: want c.shut", x.name)
		}
		expect.Equal(t, c.unread(), false, "%s", x.name)
	}
	for name, nc := range map[string]net.Conn{"it cannot be closed alone": mute{&sink{}}, "it is closed": &sink{
		cannot: errors.New("closed")}} {
		_, c := quiet(t, 0, 0, 0)
		c.NC = nc
		c.linger()
		expect.Equal(t, c.state, dead, "%s: c.state", name)
		expect.Equal(t, c.why, ends.Else, "%s: c.why", name)
	}
}

// Long buffers are written in pieces. A client that accepts only a part of a piece stays. A client whose
// write fails is closed.
func TestBuffersAreWrittenInPieces(t *testing.T) {
	const size = 3*writePiece + 5
	for _, x := range []struct {
		name   string
		secure bool
		most   int
		fails  error
		pieces int
		first  int
		why    ends.Reason
	}{
		{"plain", false, 0, nil, 4, writePiece, ends.None},
		{"TLS", true, 0, nil, 13, writePieceTLS, ends.None},
		{"a part of each piece", false, writePiece - 1, nil, 4, writePiece, ends.None},
		{"a part of a piece of TLS", true, writePieceTLS - 1, nil, 1, writePieceTLS, ends.Slow},
		{"an error", false, 0, syscall.ECONNRESET, 1, writePiece, ends.Client},
		{"a closed socket", false, 0, net.ErrClosed, 1, writePiece, ends.Else},
	} {
		s, c := quiet(t, 0, 0, 0)
		to := &sink{most: x.most, fails: x.fails}
		c.NC, c.Secure = mute{to}, x.secure
		must.That(t, s.Keep(c, budget.Output, 1), "no memory")
		c.buf = make([]byte, size)
		c.Flush()
		if expect.Equal(t, len(to.sizes), x.pieces, "%s: len(to.sizes)", x.name) {
			expect.Equal(t, to.sizes[0], x.first, "%s: to.sizes[0]", x.name)
			expect.Equal(t, len(to.got) == size, x.why == ends.None,
				"%s: len(to.got) == size", x.name)
		}
		expect.Equal(t, c.why, x.why, "%s: c.why", x.name)
		expect.Equal(t, c.writing, 0, "%s: c.writing", x.name)
		expect.Equal(t, len(c.unsent), 0, "%s: len(c.unsent)", x.name)
	}
	// Each piece of a long buffer that a client accepts counts as progress.
	for n, progress := range map[int]bool{FlushSize: false, FlushSize + 1: true} {
		s, c := quiet(t, 0, 0, 0)
		c.NC = &sink{}
		must.That(t, s.Keep(c, budget.Output, 1), "no memory")
		c.unsent = make([]byte, n)
		must.OK(t, c.writeAll())
		slow, _ := s.Memory.Slowest(connOf(s), false)
		expect.Equal(t, slow == nil, progress, "%d bytes", n)
	}
}

// A connection accepts no frame after its last one.
func TestLastFrames(t *testing.T) {
	_, c := quiet(t, 0, 0, 0)
	c.Last([]byte("last"), ends.Word)
	c.Last([]byte("more"), ends.Auth)
	expect.Equal(t, string(c.buf), "last", "string(c.buf)")
	expect.Equal(t, c.frames, 1, "c.frames")
	expect.Equal(t, c.why, ends.Word, "c.why")
	_, c = quiet(t, 0, 0, 0)
	c.Last(nil, ends.Auth)
	expect.Equal(t, c.frames, 0, "a frame of nothing: c.frames")
	expect.Equal(t, c.state, ending, "a frame of nothing: c.state")
}
