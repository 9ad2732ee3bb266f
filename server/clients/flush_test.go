package clients

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

// sink takes what is written, up to a number of bytes at a time, until it fails.
type sink struct {
	net.Conn
	most    int // of a write; 0: any
	fails   error
	got     []byte
	sizes   []int // of what was offered
	closed  int
	halves  int // closed for writing
	cannot  error
	reading []time.Time // deadlines
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

// mute is a connection of which no side can be closed alone.
type mute struct{ *sink }

func (mute) CloseWrite() {}

// A flush writes what waits if no other does, and ends the writing side behind the last frame.
func TestFlushesOfAnOutbox(t *testing.T) {
	for _, x := range []struct {
		name     string
		waits    string
		state    outboxState
		flushing bool
		got      string
		halves   int
	}{
		{name: "nothing waits"},
		{name: "something waits", waits: "frame", got: "frame"},
		{name: "another flush is under way", waits: "frame", flushing: true},
		{name: "the last frame", waits: "frame", state: outboxEnding, got: "frame", halves: 1},
		{name: "no last frame", state: outboxEnding, halves: 1},
		{name: "it is dead", waits: "frame", state: outboxDead},
	} {
		_, c := quiet(t, Options{})
		to := &sink{}
		c.nc = to
		c.out.state, c.out.flushing = x.state, x.flushing
		if x.waits != "" {
			c.out.append([]byte(x.waits))
		}
		c.flush()
		expect.Equal(t, string(to.got), x.got, "%s: string(to.got)", x.name)
		expect.Equal(t, to.halves, x.halves, "%s: to.halves", x.name)
		if expect.Equal(t, len(to.reading), x.halves, "%s: len(to.reading)", x.name) {
			expect.Equal(t, to.closed, 0, "%s: to.closed", x.name)
		}
		expect.Equal(t, c.out.flushing, x.flushing, "%s: c.out.flushing", x.name)
		expect.That(t, !c.out.own, "%s: the flush goes on: want !c.out.own", x.name)
		expect.Equal(t, c.out.shut, x.halves > 0, "%s: c.out.shut", x.name)
		if x.halves > 0 { // a late outcome may touch it again
			c.flush()
			expect.Equal(t, to.halves, 1, "%s: to.halves", x.name)
			expect.That(t, c.out.shut, "%s: closed again: want c.out.shut", x.name)
		}
		expect.Equal(t, c.unread(), false, "%s", x.name)
	}
	for name, nc := range map[string]net.Conn{"it cannot be closed alone": mute{&sink{}}, "it is closed": &sink{
		cannot: errors.New("closed")}} {
		_, c := quiet(t, Options{})
		c.nc = nc
		c.linger()
		expect.Equal(t, c.out.state, outboxDead, "%s: c.out.state", name)
		expect.Equal(t, c.out.why, ends.Else, "%s: c.out.why", name)
	}
}

// Long buffers are written in pieces; a client that takes a part of one goes on, one that fails is closed.
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
		_, c := quiet(t, Options{})
		to := &sink{most: x.most, fails: x.fails}
		c.nc, c.secure = mute{to}, x.secure
		heldSinceLongAgo(t, c, budget.Output, 1)
		c.out.buf = make([]byte, size)
		c.flush()
		if expect.Equal(t, len(to.sizes), x.pieces, "%s: len(to.sizes)", x.name) {
			expect.Equal(t, to.sizes[0], x.first, "%s: to.sizes[0]", x.name)
			expect.Equal(t, len(to.got) == size, x.why == ends.None,
				"%s: len(to.got) == size", x.name)
		}
		expect.Equal(t, c.out.why, x.why, "%s: c.out.why", x.name)
		expect.Equal(t, c.out.writing, 0, "%s: c.out.writing", x.name)
		expect.Equal(t, len(c.flight.unsent), 0, "%s: len(c.flight.unsent)", x.name)
	}
	// A piece that a client takes of a long buffer is progress.
	for n, progress := range map[int]bool{flushSize: false, flushSize + 1: true} {
		s, c := quiet(t, Options{})
		c.nc = &sink{}
		heldSinceLongAgo(t, c, budget.Output, 1)
		c.flight.unsent = make([]byte, n)
		must.OK(t, c.writeAll())
		slow, _ := s.memory.Slowest(connFrom(s, new(address)), false)
		expect.Equal(t, slow == nil, progress, "%d bytes", n)
	}
}

// What the first bytes say of a client that speaks another protocol.
func TestBeginningsOfOtherProtocols(t *testing.T) {
	for first, want := range map[string]struct{ foreign, answered bool }{
		"GET ": {true, true}, "POST": {true, true}, "HEAD": {true, true}, "PUT ": {true, true}, "DELE": {false, false},
		"\x16\x03\x01\x02": {true, false}, "\x16\x02\x01\x02": {false, false}, "\x15\x03\x01\x02": {false, false},
		"\x00\x00\x00\x2d": {false, false},
	} {
		s, c := quiet(t, Options{})
		s.adminURL = "http://a:8181"
		expect.Equal(t, c.foreign([4]byte([]byte(first))), want.foreign, "%q", first)
		expect.Equal(t, c.reader.said, want.foreign, "%q: c.reader.said", first)
		expect.Equal(t, s.counts.foreign.Load() == 1, want.foreign,
			"%q: s.counts.foreign.Load() == 1", first)
		expect.Equal(t, c.out.size() > 0 && c.out.state == outboxEnding && c.out.why == ends.Plain,
			want.answered, "%q", first)
		if want.answered {
			expect.Has(t, string(c.out.buf), "http://a:8181/\n")
		}
	}
	for n, want := range map[byte]ends.Reason{0: ends.Client,
		1: ends.Length} { // of a length of 1 KiB and n bytes
		s, c := quiet(t, Options{})
		client, server := net.Pipe()
		c.nc = server
		client.Close()
		_, why := c.helloFrame([4]byte{0, 0, 4, n})
		expect.Equal(t, why, want, "%d bytes: why", 1024+int(n))
		expect.Equal(t, s.metrics.HandshakeFailed.Load() == 1, want == ends.Length,
			"%d bytes: s.metrics.HandshakeFailed.Load() == 1", 1024+int(n))
	}
}

// A connection takes no frame behind its last.
func TestLastFrames(t *testing.T) {
	_, c := quiet(t, Options{})
	c.last([]byte("last"), ends.Word)
	c.last([]byte("more"), ends.Auth)
	expect.Equal(t, string(c.out.buf), "last", "string(c.out.buf)")
	expect.Equal(t, c.out.frames, 1, "c.out.frames")
	expect.Equal(t, c.out.why, ends.Word, "c.out.why")
	_, c = quiet(t, Options{})
	c.last(nil, ends.Auth)
	expect.Equal(t, c.out.frames, 0, "a frame of nothing: c.out.frames")
	expect.Equal(t, c.out.state, outboxEnding, "a frame of nothing: c.out.state")
}
