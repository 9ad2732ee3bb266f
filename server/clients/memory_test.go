package clients

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// buffered() returns how many bytes the server's buffers hold.
func (r *rig) buffered() int { return r.srv.conns.Memory.Used() }

func TestUnfinishedFramesLetOthersPass(t *testing.T) {
	const bound = 2 << 20
	virtual(t, options.Options{MaxBuffers: bound}, func(t *testing.T, r *rig, ln *pipeListener) {
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
		used := r.buffered()
		expect.That(t, used <= bound && used >= bound/2, "%d bytes for unfinished frames", used)
		expect.Equal(t, r.srv.conns.Counts.Ends[ends.Stalled].Load(), 0, "closed before their time")
		c := ln.dial(t)
		must.OK(t, c.Connect(hello))
		start := time.Now()
		must.OK(t, c.WriteRaw(big))
		wantKinds(t, c, 7)
		d := time.Since(start)
		expect.That(t, d <= 2*time.Second, "a whole frame waited %v for unfinished ones", d)
		n := r.srv.conns.Counts.Ends[ends.Stalled].Load()
		expect.That(t, n != 0, "nobody was closed")
		for _, c := range stalled {
			c.Close()
		}
		synctest.Wait()
		alive(t, c)
		expect.Equal(t, r.buffered(), 0, "bytes that are left")
	})
}

// A client that slowly sends a large frame, or slowly reads a large answer, makes progress, and keeps its
// connection. Others may wait for its memory for longer than Grace, the limit for a connection without
// progress.
func TestLargeFramesOnABusyMachineHaveTheirTime(t *testing.T) {
	const bound, size = 1 << 20, 900_000
	o := options.Options{MaxBuffers: bound, MaxConnsPerAddr: -1}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
		big := wire.AppendRequest(nil, 7, jute.OpCreate, wire.Create("/big", make([]byte, size), jute.WorldAnyone, 0))
		slow, fast := ln.dial(t), ln.dial(t)
		for _, c := range []*wire.Conn{slow, fast} {
			must.OK(t, c.Connect(wire.NewSession(40000)))
		}
		const piece, pause = 100_000, 300 * time.Millisecond
		must.OK(t, slow.WriteRaw(big[:piece]))
		go fast.WriteRaw(wire.AppendRequest(nil, 8, jute.OpSetData, wire.SetData("/big", make([]byte, size), -1)))
		for sent := piece; sent < len(big); sent += piece {
			time.Sleep(pause)
			must.OK(t, slow.WriteRaw(big[sent:min(sent+piece, len(big))]))
		}
		wantKinds(t, slow, 7)
		wantKinds(t, fast, 8)

		must.OK(t, slow.SendXid(9, jute.OpGetData, wire.PathWatch("/big", false)))
		synctest.Wait()
		must.OK(t, fast.SendXid(10, jute.OpGetData, wire.PathWatch("/big", false)))
		buf := make([]byte, piece)
		for got := 0; got < size; {
			time.Sleep(pause)
			got += must.Get(slow.Conn.Read(buf))(t)
		}
		f := must.Get(fast.Next())(t)
		expect.Equal(t, f.Xid, 10, "the answer to the other")
		counts := &r.srv.conns.Counts.Ends
		expect.Equal(t, counts[ends.Stalled].Load()+counts[ends.Slow].Load(), 0, "closed")
	})
}

// A small request does not wait, because it does not need the memory for which large ones wait.
func TestSmallFramesDoNotWaitForLargeOnes(t *testing.T) {
	virtual(t, options.Options{MaxBuffers: 1 << 20}, func(t *testing.T, r *rig, ln *pipeListener) {
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
	o := options.Options{MaxBuffers: 1 << 20, MaxConnsPerAddr: -1}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
		frame := wire.AppendRequest(nil, 7, jute.OpCreate, wire.Create("/big", make([]byte, 1_000_000),
			jute.WorldAnyone, 0))
		for range 15 {
			c := ln.dial(t)
			must.OK(t, c.Connect(wire.NewSession(40000)))
			go c.WriteRaw(frame[:999_000]) // each of these connections holds up the others until the server closes it
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
	o := options.Options{MaxBuffers: bound, MaxConnsPerAddr: -1}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
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
				go c.SendXid(1, ask.op, ask.body) // the client reads nothing
			}
			synctest.Wait()
			used := r.buffered()
			expect.That(t, used <= bound, "%d bytes for answers nobody reads", used)
			start := time.Now()
			f := call(t, owner, jute.OK, ask.op, ask.body)
			d := time.Since(start)
			expect.That(t, d <= 2*time.Second, "an answer that the client reads took %v", d)
			expect.That(t, len(f.Body) >= 300_000, "an answer that the client reads has %d bytes", len(f.Body))
		}
		n := r.srv.conns.Counts.Ends[ends.Slow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

func TestOutcomesForThoseWhoDoNotReadAreBoundedInAll(t *testing.T) {
	const bound = 1 << 20
	o := options.Options{MaxBuffers: bound, MaxConnsPerAddr: -1}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
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
		used := r.buffered()
		expect.That(t, used <= bound+10*4*outbox.FlushSize, "%d bytes of outcomes", used)
		n := r.srv.conns.Counts.Ends[ends.Slow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

func TestEventsForThoseWhoDoNotReadAreBoundedInAll(t *testing.T) {
	const bound = 1 << 20
	o := options.Options{MaxBuffers: bound, MaxConnsPerAddr: -1}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
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
		used := r.buffered()
		expect.That(t, used <= bound+len(deaf)*4*outbox.FlushSize, "%d bytes of events", used)
		n := r.srv.conns.Counts.Ends[ends.Slow].Load()
		expect.That(t, n != 0, "nobody was closed")
	})
}

// A long setWatches takes no more memory than one of its pieces.
func TestLongSetWatchesIsReadInPieces(t *testing.T) {
	o := options.Options{MaxFrame: 4 << 10, MaxBuffers: 64 << 10}
	virtual(t, o, func(t *testing.T, r *rig, ln *pipeListener) {
		c := ln.dial(t)
		must.OK(t, c.Connect(wire.NewSession(40000)))
		create(t, c, "/there", "", 0)
		var data, exist []string
		for i := range 20_000 {
			data = append(data, fmt.Sprint("/gone", i))
			exist = append(exist, fmt.Sprintf("/missing%010d", i))
		}
		data = append(data, "/there", "", "/"+strings.Repeat("y", 4000))
		body := wire.SetWatches(1<<60, data, exist, nil)
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
			used := r.buffered()
			must.That(t, used <= 64<<10, "%d bytes", used)
		}
		n := r.status().AllWatches
		expect.Equal(t, deleted, 20_001, "deleted")
		expect.Equal(t, n, 20_002)
		must.OK(t, c.SendXid(10, jute.OpSetData, wire.SetData("/there", nil, -1)))
		wantKinds(t, c, "NodeDataChanged /there", 10)

		// A malformed path or list ends the connection.
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
			go b.SendXid(1, jute.OpSetWatches, spoil(wire.SetWatches(1<<60, nil, exist, nil)))
			if f, err := b.Next(); err == nil {
				t.Errorf("%s: answered %+v", name, f)
			}
			synctest.Wait()
		}
		expect.Equal(t, r.srv.conns.Counts.Ends[ends.Malformed].Load(), 3, "found malformed")
	})
}

// A setWatches that is shorter than MaxFrame takes no more memory than its frame, however short its paths
// are.
func TestSetWatchesIsNotDecodedAtOnce(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	body := wire.SetWatches(1<<60, slices.Repeat([]string{"/"}, 150_000), nil, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call(t, c, jute.OK, jute.OpSetWatches, body)
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	expect.That(t, took < uint64(5*len(body)), "%d bytes allocated for a frame of %d", took, len(body))
}

// A multiRead with too large an answer is refused before it allocates memory for that answer.
func TestMultiReadThatIsTooLargeTakesNoMemory(t *testing.T) {
	r := newRig(t, options.Options{})
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
