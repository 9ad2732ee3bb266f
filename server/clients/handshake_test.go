package clients

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestConnectResponseHasReadOnlyByteIffRequestHadIt(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, has := range []bool{false, true} {
		c := r.dial()
		hello := wire.NewSession(10000)
		hello.HasReadOnly = has
		must.OK(t, c.Connect(hello))
		expect.Equal(t, c.Session.HasReadOnly, has,
			"request with byte %v: c.Session.HasReadOnly", has)
		expect.That(t, !c.Session.ReadOnly,
			"request with byte %v: response %+v: want !c.Session.ReadOnly", has, c.Session)
		expect.Equal(t, c.Session.Timeout, 10000, "session %+v: c.Session.Timeout", c.Session)
		expect.That(t, c.Session.ID > 0, "session %+v: want c.Session.ID > 0", c.Session)
		expect.That(t, !bytes.Equal(c.Session.Password, make([]byte, 16)),
			"session %+v: want !bytes.Equal(c.Session.Password, make([]byte, 16))", c.Session)
	}
}

func TestTimeoutIsClamped(t *testing.T) {
	r := newRig(t, options.Options{MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: 9 * time.Second})
	for asked, want := range map[int32]int32{-5: 2000, 0: 2000, 1999: 2000, 2000: 2000, 5000: 5000, 9000: 9000,
		9001: 9000, 1<<31 - 1: 9000} {
		c := r.dial()
		must.OK(t, c.Connect(wire.NewSession(asked)))
		expect.Equal(t, c.Session.Timeout, want, "asked %d", asked)
	}
}

func TestPasswordOfNewSessionDoesNotMatter(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, pw := range [][]byte{nil, {}, make([]byte, 15), make([]byte, 17), make([]byte, 300)} {
		c := r.dial()
		hello := wire.NewSession(10000)
		hello.Password = pw
		expect.OK(t, c.Connect(hello), "password of %d bytes", len(pw))
	}
}

func TestReattachKeepsSessionAndClosesOlderConnection(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	create(t, a, "/e", "", jute.FlagEphemeral)
	hello := wire.Attach(a.Session, a.Zxid)
	hello.Timeout = 7000
	b := r.dial()
	must.OK(t, b.Connect(hello))
	must.Equal(t, b.Session.ID, a.Session.ID,
		"attached %+v to %+v: b.Session.ID", b.Session, a.Session)
	must.That(t, bytes.Equal(b.Session.Password, a.Session.Password),
		"attached %+v to %+v: want bytes.Equal(b.Session.Password, a.Session.Password)",
		b.Session, a.Session)
	must.Equal(t, b.Session.Timeout, 7000,
		"attached %+v to %+v: b.Session.Timeout", b.Session, a.Session)
	must.OK(t, a.Closed())
	call(t, b, jute.OK, jute.OpExists, wire.PathWatch("/e", false))
}

func TestWrongPasswordIsRefusedAndHarmsNobody(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	flipped := bytes.Clone(a.Session.Password)
	flipped[15] ^= 1
	for name, pw := range map[string][]byte{
		"flipped": flipped, "null": nil, "empty": {}, "15 bytes": a.Session.Password[:15],
		"17 bytes": append(bytes.Clone(a.Session.Password), 0), "zeros": make([]byte, 16),
	} {
		c := r.dial()
		hello := wire.Attach(a.Session, 0)
		hello.Password = pw
		expect.Equal(t, c.Connect(hello), wire.ErrRefused, "%s", name)
		must.OK(t, c.Closed())
	}
	call(t, a, jute.OK, jute.OpPing, nil)
	expect.Equal(t, r.measured("sessions_refused_total"), 6, "refusals counted")
}

func TestUnknownSessionIsRefused(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	call(t, a, jute.OK, jute.OpCloseSession, nil)
	must.OK(t, a.Closed())
	for _, id := range []int64{a.Session.ID, 1, -1, 1 << 62} {
		for _, has := range []bool{false, true} {
			c := r.dial()
			hello := wire.Attach(a.Session, 0)
			hello.SessionID, hello.HasReadOnly = id, has
			must.OK(t, c.WriteRaw(wire.AppendConnectRequest(nil, hello)))
			b := must.Get(c.ReadFrame())(t)
			want := make([]byte, 36)
			want[19] = 16
			if has {
				want = append(want, 0)
			}
			expect.List(t, b, want, "session %d", id)
			must.OK(t, c.Closed())
		}
	}
}

func TestClientAheadIsClosedWithoutAnswer(t *testing.T) {
	r := newRig(t, options.Options{MinSessionTimeout: 30 * time.Millisecond})
	a := r.client()
	for _, id := range []int64{0, a.Session.ID} {
		c := r.dial()
		hello := wire.Attach(a.Session, 1<<60)
		hello.SessionID, hello.Timeout = id, 30
		expect.Equal(t, c.Connect(hello), io.EOF, "session %d", id)
	}
	call(t, a, jute.OK, jute.OpPing, nil)
}

func TestClientAheadIsServedOnceTheServerHasCaughtUp(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	f := create(t, a, "/a", "", 0)
	c := r.dial()
	must.OK(t, c.WriteRaw(wire.AppendConnectRequest(nil,
		wire.Attach(wire.Session{Timeout: 30000, Password: make([]byte, 16)}, f.Zxid+1))))
	must.OK(t, c.Silent(50*time.Millisecond))
	create(t, a, "/b", "", 0)
	b := must.Get(c.ReadFrame())(t)
	s, err := wire.DecodeSession(b)
	must.OK(t, err, "session %+v, %v", s, err)
	must.That(t, s.ID != 0, "session %+v, %v: want s.ID != 0", s, err)
}

func TestNothingIsAnsweredBeforeTheConnectResponse(t *testing.T) {
	r := newRig(t, options.Options{})
	r.valve.close()
	c := r.dial()
	b := wire.AppendConnectRequest(nil, wire.NewSession(10000))
	b = wire.AppendRequest(b, 1, jute.OpGetData, wire.PathWatch("/", false))
	b = wire.AppendRequest(b, 2, jute.OpCreate, wire.Create("/x", nil, jute.WorldAnyone, 0))
	b = wire.AppendRequest(b, 3, jute.OpGetData, wire.PathWatch("/x", false))
	must.OK(t, c.WriteRaw(b))
	eventually(t, "proposed", func() bool { return r.valve.waiting() == 1 })
	must.OK(t, c.Silent(30*time.Millisecond))
	must.Equal(t, r.valve.waiting(), 1, "requests proposed before there is a session")
	r.valve.open()
	f := must.Get(c.ReadFrame())(t)
	s, err := wire.DecodeSession(f)
	must.OK(t, err, "session %+v, %v", s, err)
	must.That(t, s.ID != 0, "session %+v, %v: want s.ID != 0", s, err)
	wantKinds(t, c, 1, 2, 3)
}

func TestConnectRequestThatIsNoneIsClosed(t *testing.T) {
	r := newRig(t, options.Options{HandshakeTimeout: time.Hour}) // only the bad request may end a connection
	whole := wire.AppendConnectRequest(nil, wire.NewSession(10000))
	frame := func(body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	badPassword := bytes.Clone(whole[4:])
	binary.BigEndian.PutUint32(badPassword[24:], 0xfffffffe)
	for name, b := range map[string][]byte{
		"empty frame":         frame(nil),
		"negative length":     {0xff, 0xff, 0xff, 0xff},
		"length above 1 KiB":  {0, 0, 4, 1},
		"one MiB":             append([]byte{0, 0x10, 0, 0}, make([]byte, 2000)...),
		"password length -2":  frame(badPassword),
		"password cut short":  frame(whole[4:40]),
		"a request":           wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/", false)),
		"telnet interrupt":    {0xff, 0xf4, 0xff, 0xfd},
		"TLS hello":           {0x16, 3, 1, 0, 200, 1, 0, 0},
		"unknown word":        []byte("help"),
		"raft's first byte":   {0, 'r', 'a', 'f', 't', 0, 0, 0},
		"password of a MiB":   frame(append(bytes.Clone(whole[4:28]), 0, 0x10, 0, 0)),
		"HTTP of other verbs": []byte("OPTIONS / HTTP/1.1\r\n\r\n"),
	} {
		c := r.dial()
		must.OK(t, c.WriteRaw(b))
		expect.OK(t, c.Closed(), "%s", name)
	}
	eventually(t, "all closed", func() bool { return r.status().Conns == 0 })
}

func TestConnectRequestCutShortAnywhereIsClosed(t *testing.T) {
	r := newRig(t, options.Options{})
	whole := wire.AppendConnectRequest(nil, wire.NewSession(10000))
	for n := range len(whole) {
		c := r.dial()
		must.OK(t, c.WriteRaw(whole[:n]))
		expect.OK(t, expect.Err(c.Drop()), "%d bytes", n)
	}
	eventually(t, "all closed", func() bool { return r.status().Conns == 0 })
	expect.Equal(t, len(r.sessions()), 0, "sessions")
}

func TestConnectBytesMayTrickle(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.dial()
	for _, b := range append(wire.AppendConnectRequest(nil, wire.NewSession(10000)), 0xee) {
		must.OK(t, c.WriteRaw([]byte{b}))
	}
	f := must.Get(c.ReadFrame())(t)
	expect.Equal(t, len(f), 37, "response %x", f)
}

func TestServerThatDoesNotServeClosesAfterFourBytes(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	idle := r.dial()
	eventually(t, "accepted", func() bool { return r.status().Conns == 2 })
	r.srv.Serving(false)
	must.OK(t, a.Closed())
	must.OK(t, idle.Silent(20*time.Millisecond))
	must.OK(t, idle.WriteRaw([]byte{0, 0, 0, 45}))
	must.OK(t, idle.Closed())
	word := r.dial()
	must.OK(t, word.WriteRaw([]byte("ruok")))
	expect.Equal(t, string(must.Get(io.ReadAll(word))(t)), "word ruok", "ruok")
	r.srv.Serving(true)
	r.attach(a.Session)
}

func TestSessionThatCannotBeMadeIsNotAnswered(t *testing.T) {
	r := newRig(t, options.Options{Rand: errReader{}})
	c := r.dial()
	expect.Equal(t, c.Connect(wire.NewSession(10000)), io.EOF, "connect")
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

func TestWaitServingEndsWithItsContext(t *testing.T) {
	s := must.Get(New(options.Options{}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	expect.Is(t, s.WaitServing(ctx), context.DeadlineExceeded, "err")
	must.OK(t, s.Shutdown(t.Context()))
	expect.Fails(t, s.WaitServing(t.Context()), "a stopped server is said to serve")
}

// If many clients connect at once, only maxConnecting of their requests wait for outcomes at a time. So
// requests of other clients need not wait for all of them.
func TestConnectRequestsComeAFewAtATime(t *testing.T) {
	virtual(t, options.Options{MaxConnsPerAddr: -1}, func(t *testing.T, r *rig, ln *pipeListener) {
		r.valve.close()
		const many = 2*maxConnecting + 10
		came := make(chan error, many)
		for range many {
			c := ln.dial(t)
			go func() { came <- c.Connect(wire.NewSession(40000)) }()
		}
		synctest.Wait()
		must.Equal(t, r.valve.waiting(), maxConnecting, "connect requests under way")
		r.valve.open()
		for range many {
			must.OK(t, <-came)
		}
	})
}
