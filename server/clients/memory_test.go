package clients

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// buffered is what the server's buffers hold.
func (r *rig) buffered() (used, conns int) {
	r.srv.memory.mu.Lock()
	defer r.srv.memory.mu.Unlock()
	return r.srv.memory.used, len(r.srv.memory.held)
}

func TestUnfinishedFramesLetOthersPass(t *testing.T) {
	const bound = 2 << 20
	virtual(t, Options{MaxBuffers: bound}, func(t *testing.T, r *rig, ln *pipeListener) {
		big := wire.AppendRequest(nil, 7, jute.OpCreate, wire.Create("/big", make([]byte, 1_000_000),
			jute.WorldAnyone, 0))
		hello := wire.NewSession(40000)
		var stalled []*wire.Conn
		for range 6 {
			c := ln.dial(t)
			must.OK(t, c.Connect(hello))
			stalled = append(stalled, c)
			go c.WriteRaw(big[:len(big)-1])
		}
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		used, _ := r.buffered()
		expect.That(t, used <= bound && used >= bound/2, "%d bytes for unfinished frames", used)
		expect.Equal(t, r.srv.counts.ends[endStalled].Load(), 0, "closed before their time")
		c := ln.dial(t)
		must.OK(t, c.Connect(hello))
		start := time.Now()
		must.OK(t, c.WriteRaw(big))
		wantKinds(t, c, 7)
		d := time.Since(start)
		expect.That(t, d <= 2*time.Second, "a whole frame waited %v for unfinished ones", d)
		n := r.srv.counts.ends[endStalled].Load()
		expect.That(t, n != 0, "nobody was closed")
		for _, c := range stalled {
			c.Close()
		}
		synctest.Wait()
		alive(t, c)
		if used, conns := r.buffered(); used != 0 || conns != 0 {
			t.Errorf("%d bytes of %d connections left", used, conns)
		}
	})
}

// A small request needs no memory of those that large ones wait for.
func TestSmallFramesDoNotWaitForLargeOnes(t *testing.T) {
	virtual(t, Options{MaxBuffers: 1 << 20}, func(t *testing.T, r *rig, ln *pipeListener) {
		a, b := ln.dial(t), ln.dial(t)
		must.OK(t, a.Connect(wire.NewSession(40000)))
		must.OK(t, b.Connect(wire.NewSession(40000)))
		go a.WriteRaw(wire.AppendRequest(nil, 7, jute.OpCreate, wire.Create("/big", make([]byte, 1_000_000),
			jute.WorldAnyone, 0))[:999_000])
		synctest.Wait()
		start := time.Now()
		create(t, b, "/small", "", 0)
		d := time.Since(start)
		expect.That(t, d <= 100*time.Millisecond, "a small create took %v", d)
	})
}

func TestClientThatWaitsForMemoryIsNotSilent(t *testing.T) {
	virtual(t, Options{MaxBuffers: 1 << 20, MaxConnsPerAddr: -1}, func(t *testing.T, r *rig, ln *pipeListener) {
		frame := wire.AppendRequest(nil, 7, jute.OpCreate, wire.Create("/big", make([]byte, 1_000_000),
			jute.WorldAnyone, 0))
		for range 15 {
			c := ln.dial(t)
			must.OK(t, c.Connect(wire.NewSession(40000)))
			go c.WriteRaw(frame[:999_000]) // each holds up the others until the server closes it
		}
		synctest.Wait()
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(4000)))
		start := time.Now()
		must.OK(t, c.WriteRaw(frame))
		wantKinds(t, c, 7)
		expect.That(t, time.Since(start) > 6*time.Second, "it waited for only %v", time.Since(start))
	})
}

func TestLongAnswersWaitForEachOther(t *testing.T) {
	const bound = 1 << 20
	virtual(t, Options{MaxBuffers: bound, MaxConnsPerAddr: -1}, func(t *testing.T, r *rig, ln *pipeListener) {
		owner := ln.dial(t)
		must.OK(t, owner.Connect(wire.NewSession(40000)))
		create(t, owner, "/dir", "", 0)
		name := strings.Repeat("x", 1000)
		for i := range 300 {
			create(t, owner, fmt.Sprintf("/dir/%s%d", name, i), "", 0)
		}
		for _, ask := range []struct {
			op   jute.OpCode
			body wire.Body
		}{
			{jute.OpGetChildren, wire.PathWatch("/dir", false)},
			{jute.OpGetChildren2, wire.PathWatch("/dir", false)},
		} {
			for range 5 {
				c := ln.dial(t)
				must.OK(t, c.Connect(wire.NewSession(40000)))
				go c.SendXid(1, ask.op, ask.body) // and reads nothing
			}
			synctest.Wait()
			used, _ := r.buffered()
			expect.That(t, used <= bound, "%d bytes for answers nobody reads", used)
			start := time.Now()
			f := call(t, owner, jute.OK, ask.op, ask.body)
			if d := time.Since(start); d > 2*time.Second || len(f.Body) < 300_000 {
				t.Errorf("an answer of %d bytes that is read took %v", len(f.Body), d)
			}
		}
		n := r.srv.counts.ends[endSlow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

func TestOutcomesForThoseWhoDoNotReadAreBoundedInAll(t *testing.T) {
	const bound = 1 << 20
	virtual(t, Options{MaxBuffers: bound, MaxConnsPerAddr: -1}, func(t *testing.T, r *rig, ln *pipeListener) {
		var p batch
		for range 100 {
			p.add(jute.OpSync, wire.Path("/"+strings.Repeat("x", 10_000)))
		}
		for range 10 {
			c := ln.dial(t)
			must.OK(t, c.Connect(wire.NewSession(40000)))
			r.valve.close()
			must.OK(t, c.WriteRaw(p.b))
			synctest.Wait()
			r.valve.open()
			synctest.Wait()
		}
		used, _ := r.buffered()
		expect.That(t, used <= bound+10*4*flushSize, "%d bytes of outcomes", used)
		n := r.srv.counts.ends[endSlow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

func TestEventsForThoseWhoDoNotReadAreBoundedInAll(t *testing.T) {
	const bound = 1 << 20
	virtual(t, Options{MaxBuffers: bound, MaxConnsPerAddr: -1}, func(t *testing.T, r *rig, ln *pipeListener) {
		owner := ln.dial(t)
		must.OK(t, owner.Connect(wire.NewSession(40000)))
		var deaf []*wire.Conn
		for range 10 {
			c := ln.dial(t)
			must.OK(t, c.Connect(wire.NewSession(40000)))
			call(t, c, jute.OK, jute.OpAddWatch, wire.Body{}.Str("/").Int(jute.AddWatchRecursive))
			deaf = append(deaf, c)
		}
		name := strings.Repeat("x", 1000)
		for i := range 1500 {
			create(t, owner, fmt.Sprintf("/%s%d", name, i), "", 0)
		}
		synctest.Wait()
		used, _ := r.buffered()
		expect.That(t, used <= bound+len(deaf)*4*flushSize, "%d bytes of events", used)
		n := r.srv.counts.ends[endSlow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

// A setWatches of any length takes no more memory than a piece of it.
func TestLongSetWatchesIsReadInPieces(t *testing.T) {
	virtual(t, Options{MaxFrame: 4 << 10, MaxBuffers: 64 << 10}, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(40000)))
		create(t, c, "/there", "", 0)
		var data, exist []string
		for i := range 20_000 {
			data = append(data, fmt.Sprint("/gone", i))
			exist = append(exist, fmt.Sprintf("/missing%010d", i))
		}
		data = append(data, "/there", "", "/"+strings.Repeat("y", 4000))
		body := wire.SetWatches(1<<40, data, exist, nil)
		must.OK(t, c.SendXid(5, jute.OpPing, nil))
		go c.SendXid(9, jute.OpSetWatches, body)
		deleted := 0
		for {
			f := must.Get(c.Next())(t)
			if f.Event == nil && f.Xid == 9 {
				expect.Equal(t, f.Code, jute.OK, "code")
				break
			}
			if f.Event != nil {
				deleted++
			}
			used, _ := r.buffered()
			must.That(t, used <= 64<<10, "%d bytes", used)
		}
		n := r.status().AllWatches
		expect.That(t, deleted == 20_001 && n == 20_002, "%d told of, %d watches", deleted, n)
		must.OK(t, c.SendXid(10, jute.OpSetData, wire.SetData("/there", nil, -1)))
		wantKinds(t, c, "NodeDataChanged /there", 10)

		// Cut short, too long, null: the connection ends.
		for name, spoil := range map[string]func([]byte) []byte{
			"path beyond the frame limit": func(b []byte) []byte {
				return wire.SetWatches(0, []string{strings.Repeat("z", 5000)}, nil, nil)
			},
			"path beyond the frame": func(b []byte) []byte { return append(b[:len(b)-4:len(b)-4], 0, 0, 0, 9) },
			"null list": func(b []byte) []byte {
				return append([]byte{0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255}, b...)
			},
		} {
			b := ln.dial(t)
			must.OK(t, b.Connect(wire.NewSession(40000)))
			go b.SendXid(1, jute.OpSetWatches, spoil(wire.SetWatches(1<<40, nil, exist, nil)))
			if f, err := b.Next(); err == nil {
				t.Errorf("%s: answered %+v", name, f)
			}
			synctest.Wait()
		}
		expect.Equal(t, r.srv.counts.ends[endMalformed].Load(), 3, "found malformed")
	})
}

// A connection may end between being given memory for a long reply and the reply, while something is still
// being written to it. What it had is free then, also once that write has failed.
func TestMemoryReservedByAConnectionThatEndsIsFree(t *testing.T) {
	for name, end := range map[string]func(*conn) bool{
		"before": func(c *conn) bool { c.close(endMoved); return c.reserve(1<<20, true) },
		"after":  func(c *conn) bool { defer c.close(endMoved); return !c.reserve(1<<20, true) },
	} {
		s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		client, server := net.Pipe()
		c := newConn(s, server, nil)
		c.out.writing = 100 << 10
		c.out.flushing = true
		expect.That(t, !end(c), "%s: wrong about the end of the connection", name)
		s.memory.drop(c)
		c.write(true) // its client is gone: this ends the flush
		if n := len(s.memory.held); n != 0 || s.memory.used != 0 {
			t.Errorf("%s: %d bytes are held by %d connections", name, s.memory.used, n)
		}
		client.Close()
		must.OK(t, s.Shutdown(t.Context()))
	}
}

// A setWatches in one piece takes no more memory than its frame, however short the paths are.
func TestSetWatchesIsNotDecodedAtOnce(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	body := wire.SetWatches(1<<40, slices.Repeat([]string{"/"}, 150_000), nil, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call(t, c, jute.OK, jute.OpSetWatches, body)
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	expect.That(t, took < uint64(5*len(body)), "%d bytes allocated for a frame of %d", took, len(body))
}

// TestReservedMemoryIsThereBeforeTheStateLock: the answer to a multiRead allocates nothing of its size
// while it holds the lock of the state.
func TestReservedMemoryIsThereBeforeTheStateLock(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	defer s.Shutdown(t.Context())
	client, server := net.Pipe()
	defer client.Close()
	c := newConn(s, server, nil)
	const size = 1 << 20
	if !c.reserve(size, true) || cap(c.out.buf) < size || len(c.out.buf) != 0 || c.out.held < size {
		t.Errorf("%d bytes are there, %d are held", cap(c.out.buf), c.out.held)
	}
}

// A multiRead whose answer is too large is refused before anything of its size is allocated.
func TestMultiReadThatIsTooLargeTakesNoMemory(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	must.Get(c.Create("/n", make([]byte, 1<<19), 0))(t)
	get := wire.Op{Type: jute.OpGetData, Body: wire.PathWatch("/n", false)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	reply := must.Get(c.Call(jute.OpMultiRead, wire.Multi(slices.Repeat([]wire.Op{get}, 100)...)))(t)
	runtime.ReadMemStats(&after)
	expect.Equal(t, reply.Code, jute.Throttled)
	expect.That(t, after.TotalAlloc-before.TotalAlloc < 12<<20, "%d bytes", after.TotalAlloc-before.TotalAlloc)
}

// A connection gets memory up to the bound, the last byte of it included; one that is alone gets what it asks
// for, and less than before is always given.
func TestMemoryIsGivenUpToItsBound(t *testing.T) {
	s, a := quiet(t, Options{MaxBuffers: 1000, MaxConnsPerAddr: -1})
	b, m := connFrom(s, new(address)), &s.memory
	for i, x := range []struct {
		c       *conn
		part, n int
		force   bool
		want    bool
		used    int
	}{
		{a, inputPart, 5000, false, true, 5000}, // alone
		{b, inputPart, 1, false, false, 5000},
		{a, outputPart, 10, false, true, 5010},
		{a, inputPart, 600, false, true, 610},
		{b, inputPart, 390, false, true, 1000},
		{b, inputPart, 391, false, false, 1000},
		{a, outputPart, 11, false, false, 1000},
		{b, outputPart, 50, true, true, 1050},
		{b, outputPart, 50, false, true, 1050},
		{b, outputPart, 0, false, true, 1000},
		{a, inputPart, 0, false, true, 400},
		{a, outputPart, 0, false, true, 390},
	} {
		got := m.try(x.c, x.part, x.n, x.force)
		expect.That(t, got == x.want && m.used == x.used, "step %d: %v, %d bytes are used", i, got, m.used)
		mine := func(c *conn) int { return m.partOf(c, inputPart) + m.partOf(c, outputPart) }
		expect.That(t, mine(a)+mine(b) == m.used && int(a.from.buffers.Load()) == mine(a) &&
			int(b.from.buffers.Load()) == mine(b), "step %d: %d and %d bytes", i, mine(a), mine(b))
	}
	expect.That(t, len(m.held) == 1 && m.held[b] != nil, "%d connections hold something", len(m.held))
	m.drop(b)
	m.drop(b)
	expect.That(t, len(m.held) == 0 && m.used == 0 && b.from.buffers.Load() == 0, "%d bytes are left", m.used)
}

// The connection with the least progress is closed, if it could make some and had its time.
func TestSlowestConnectionIsFound(t *testing.T) {
	s, a := quiet(t, Options{MaxConnsPerAddr: -1})
	b, c, m := connFrom(s, new(address)), connFrom(s, new(address)), &s.memory
	now := s.now()
	ago := func(d time.Duration) time.Duration { return now - memoryGrace - d }
	type hold = holding
	for name, x := range map[string]struct {
		a, b hold
		own  bool
		slow *conn
		why  endReason
	}{
		"a frame that does not come":   {hold{[2]int{9, 0}, ago(time.Hour), true}, hold{[2]int{9, 0}, ago(time.Minute), true}, false, a, endStalled},
		"an answer that is not taken":  {hold{[2]int{0, 9}, ago(time.Minute), false}, hold{[2]int{0, 9}, ago(time.Hour), false}, false, b, endSlow},
		"both of one":                  {hold{[2]int{9, 9}, ago(time.Minute), true}, hold{}, false, a, endStalled},
		"a frame that is complete":     {hold{[2]int{9, 0}, ago(time.Hour), false}, hold{[2]int{9, 0}, ago(time.Minute), true}, false, b, endStalled},
		"both too early":               {hold{[2]int{9, 0}, now + time.Hour, true}, hold{[2]int{0, 9}, now + time.Hour, false}, false, nil, endNone},
		"nothing to be done":           {hold{[2]int{9, 0}, ago(time.Hour), false}, hold{[2]int{9, 0}, ago(time.Hour), false}, false, nil, endNone},
		"of the address, another's":    {hold{[2]int{9, 0}, ago(time.Hour), true}, hold{[2]int{0, 9}, ago(time.Hour), false}, true, nil, endNone},
		"of the address, its own, too": {hold{[2]int{9, 0}, ago(time.Hour), true}, hold{}, true, nil, endNone},
	} {
		m.held = map[*conn]*holding{a: &x.a, b: &x.b}
		slow, why := m.slowest(&memoryWait{c: c, own: x.own})
		expect.That(t, slow == x.slow && why == x.why, "%s: %v", name, why)
	}
	m.held = map[*conn]*holding{a: {[2]int{9, 0}, ago(time.Hour), true}, b: {[2]int{9, 0}, ago(time.Minute), true}}
	slow, why := m.slowest(&memoryWait{c: a})
	expect.That(t, slow == nil && why == endNone, "a connection that is the slowest is closed by another, %v", why)
	slow, why = m.slowest(&memoryWait{c: connFrom(s, b.from), own: true})
	expect.That(t, slow == b && why == endStalled, "of the address: %v", why)
	m.held = map[*conn]*holding{}
}

// Progress is a frame that begins or is complete, and bytes that the client takes.
func TestProgressIsNoted(t *testing.T) {
	s, c := quiet(t, Options{})
	m := &s.memory
	m.partial(c, true) // holds nothing
	m.written(c)
	must.Equal(t, len(m.held), 0)
	must.That(t, m.try(c, inputPart, 10, false), "no memory")
	since := func() time.Duration { return m.held[c].since }
	forget := func() { m.held[c].since = -time.Hour }
	forget()
	m.partial(c, false)
	expect.Equal(t, since(), -time.Hour, "nothing has changed")
	m.partial(c, true)
	expect.That(t, since() > -time.Hour && m.held[c].partial, "a frame has begun")
	forget()
	m.partial(c, true)
	expect.Equal(t, since(), -time.Hour, "the frame goes on")
	m.partial(c, false)
	expect.That(t, since() > -time.Hour && !m.held[c].partial, "the frame is complete")
	forget()
	m.written(c)
	expect.That(t, since() > -time.Hour, "bytes are taken")
}

// Connections that wait get memory in their order, but one whose own address has too much lets others pass.
func TestLineForMemory(t *testing.T) {
	s, a := quiet(t, Options{MaxBuffers: 1010, MaxWatchBytesPerConn: 600})
	b, rich, m := connFrom(s, new(address)), connFrom(s, new(address)), &s.memory
	must.That(t, m.try(a, inputPart, 500, false) && m.try(b, inputPart, 300, false), "no memory")
	rich.from.watches.Store(1200)
	must.That(t, m.try(connFrom(s, rich.from), inputPart, 10, false), "an address without buffers may have some")
	var line []*memoryWait
	join := func(c *conn, n int) *memoryWait {
		w := &memoryWait{c: c, part: outputPart, n: n, granted: make(chan struct{})}
		line = append(line, w)
		m.line = append(m.line, w)
		return w
	}
	granted := func(w *memoryWait) bool {
		select {
		case <-w.granted:
			return true
		default:
			return false
		}
	}
	own, large, small, none := join(rich, 100), join(b, 250), join(connFrom(s, new(address)), 10), join(a, 0)
	m.advance()
	expect.That(t, len(m.line) == 4 && own.own && !large.own, "%d wait", len(m.line))
	must.That(t, m.try(a, inputPart, 450, false), "less than before")
	expect.That(t, granted(large) && !granted(small) && granted(none) == false && !granted(own), "the first that fits")
	must.That(t, m.try(a, inputPart, 440, false), "less than before")
	expect.That(t, granted(small) && granted(none) && !granted(own) && len(m.line) == 1, "%d wait", len(m.line))
	expect.Equal(t, m.used, 440+300+10+250+10)
	rich.from.watches.Store(0)
	m.leave(none) // is not there any more
	expect.That(t, len(m.line) == 1 && !granted(own), "%d wait", len(m.line))
	later := join(b, 300)
	m.leave(own)
	expect.That(t, len(m.line) == 1 && m.line[0] == later && !granted(later), "%d wait", len(m.line))
	m.drop(a)
	expect.That(t, granted(later) && len(m.line) == 0 && m.used == 300+10+300+10, "%d bytes are used", m.used)
	for _, w := range m.line[:cap(m.line)] {
		expect.That(t, w == nil, "the line keeps %v", w)
	}
}

// An outbox is told to the memory in steps, from flushSize on; one that others fill dies if there is no room.
func TestOutboxIsHeldInSteps(t *testing.T) {
	s, c := quiet(t, Options{MaxBuffers: 1 << 20})
	o := &c.out
	for _, x := range []struct{ n, writing, reserved, held int }{
		{100, 0, 0, 0}, {flushSize, 0, 0, 0}, {flushSize + 1, 0, 0, flushSize + holdStep},
		{flushSize + holdStep, 0, 0, flushSize + holdStep}, {flushSize + holdStep + 1, 0, 0, flushSize + 2*holdStep},
		{10, flushSize, 0, flushSize + holdStep}, {10, 0, flushSize, flushSize + holdStep}, {0, 0, 0, 0},
	} {
		o.buf, o.writing, o.reserved = make([]byte, x.n), x.writing, x.reserved
		c.hold(false)
		expect.That(t, o.held == x.held && s.memory.used == x.held && o.state == outboxOpen,
			"%d bytes, %d are written, %d reserved: %d held, %d used", x.n, x.writing, x.reserved, o.held, s.memory.used)
	}
	other := connFrom(s, new(address))
	must.That(t, s.memory.try(other, inputPart, 1<<20, true), "no memory")
	o.buf, o.writing, o.reserved = make([]byte, 4*flushSize), 0, 0
	c.grown(true)
	expect.That(t, o.state == outboxOpen && o.held == 4*flushSize, "4 times flushSize: %d held", o.held)
	o.buf = make([]byte, 4*flushSize+1)
	c.grown(false)
	expect.That(t, o.state == outboxOpen && o.held == 4*flushSize+holdStep, "by its own goroutine: %d held", o.held)
	o.buf = make([]byte, 4*flushSize+holdStep)
	c.grown(true)
	expect.Equal(t, o.state, outboxOpen, "what is held already")
	o.buf = make([]byte, 4*flushSize+holdStep+1)
	c.grown(true)
	expect.That(t, o.state == outboxDead && o.why == endSlow, "more, by others: %v", o.why)
}

// What is reserved for a reply is held in steps as well, behind what waits already, and in a buffer of its own if
// the reply is built at once.
func TestReservedMemoryIsHeldInSteps(t *testing.T) {
	for _, x := range []struct {
		size, waits int
		now         bool
		held        int
	}{
		{100, 0, true, 0}, {flushSize + 1, 0, true, flushSize + holdStep}, {1<<20 + 1, 0, false, 1<<20 + holdStep},
		{1 << 20, 1000, true, 1<<20 + holdStep}, {1 << 20, 1000, false, 1<<20 + holdStep},
	} {
		s, c := quiet(t, Options{})
		o := &c.out
		o.writing, o.flushing = x.waits, true // what waits is being written
		must.That(t, c.reserve(x.size, x.now), "no memory")
		expect.That(t, o.held == x.held && s.memory.partOf(c, outputPart) == x.held && s.memory.used == x.held &&
			o.reserved == x.size, "%d bytes behind %d: %d held, %d used, %d reserved", x.size, x.waits, o.held, s.memory.used,
			o.reserved)
		expect.Equal(t, cap(o.buf) >= x.size+keepSize, x.now, "%d bytes: a buffer of %d", x.size, cap(o.buf))
		o.append([]byte("frame"))
		must.That(t, c.reserve(x.size, true), "no memory")
		expect.That(t, len(o.full) == 1 && string(o.full[0]) == "frame" && len(o.buf) == 0, "a frame before the reply")
		c.close(endMoved)
		expect.That(t, !c.reserve(x.size, true) && o.reserved == 0, "after the end")
	}
}
