package clients

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Appended replies are written in order and once, a long reply in its gap.
func TestOutboxKeepsItsOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var o outbox
		var want, behind, got []byte
		var shared, copies [][]byte
		frames, wrote := 0, 0
		frame := func() []byte { return bytes.Repeat([]byte{byte(r.IntN(256))}, 1+r.IntN(1<<r.IntN(18))) }
		take := func() {
			p, n := o.take()
			got, wrote = append(got, p.b...), wrote+n
			o.give(p)
		}
		for range 300 {
			switch k := r.IntN(10); {
			case k == 0 && !o.gap:
				o.openGap()
			case k == 0:
				reply := frame()
				at := r.IntN(len(reply))
				o.fill(piece{b: reply[:at:at]}, piece{b: reply[at:]})
				want, behind, frames = append(append(want, reply...), behind...), nil, frames+1
			case k < 4 && !o.empty():
				take()
			default:
				f := frame()
				if k < 7 {
					o.append(f)
				} else { // events, the middle of what all hear of
					all := slices.Concat(frame(), f, frame())
					at := bytes.Index(all, f)
					if o.tell(all, at, at+len(f), 1, nil) {
						shared = append(shared, all)
						copies = append(copies, bytes.Clone(all))
					}
				}
				if frames++; o.gap {
					behind = append(behind, f...)
				} else {
					want = append(want, f...)
				}
			}
			if n := len(want) + len(behind) - len(got); o.size() != n || o.empty() != (len(want) == len(got)) {
				t.Fatalf("seed %d: %d bytes wait, not %d; empty: %v", seed, n, o.size(), o.empty())
			}
		}
		if r.IntN(2) == 0 && o.gap { // the connection ends before the reply is there
			o.end(ends.Gone)
			o.fill(piece{b: frame()})
			behind = nil
		}
		for !o.empty() {
			take()
		}
		must.That(t, bytes.Equal(got, want),
			"seed %d: %d bytes in %d frames were written, want %d in %d: want bytes.Equal(got, want)",
			seed, len(got), wrote, len(want), frames)
		must.That(t, o.state != outboxOpen || behind != nil || wrote == frames,
			"seed %d: %d bytes in %d frames were written, want %d in %d",
			seed, len(got), wrote, len(want), frames)
		for i := range shared {
			must.That(t, bytes.Equal(shared[i], copies[i]), "seed %d: a shared buffer was written to", seed)
		}
	}
}

// An outbox that many events fill takes little more memory than they do: no buffer grows by copying.
func TestLongOutboxIsNotCopied(t *testing.T) {
	var o outbox
	frame := make([]byte, 900)
	for o.size() < 8<<20 {
		o.append(frame)
	}
	room := cap(o.buf)
	for _, p := range o.full {
		room += cap(p.b)
	}
	expect.That(t, room <= o.size()+o.size()/4, "%d bytes of buffers for %d", room, o.size())
	first := &o.full[0].b[0]
	o.append(make([]byte, 1<<20))
	expect.Equal(t, first, &o.full[0].b[0], "the first buffer has moved")
}

// However many outboxes an event has filled, a reply waits for one run of them, and they for one of replies. The
// reply to the client that made the change is such a reply, whether its connection watches or not.
func TestRepliesDoNotWaitForAHerd(t *testing.T) {
	var f flushers
	f.cond.L = &f.mu
	watchers, others := make([]*conn, 10*herd), make([]*conn, herd)
	for i := range watchers {
		watchers[i] = new(conn)
	}
	for i := range others {
		others[i] = new(conn)
	}
	f.told(watchers)
	f.touch(watchers[len(watchers)-1]) // has made the change
	f.kick()
	var replies, events []*conn
	for i := range others {
		if i > 0 {
			f.touch(others[i])
			f.kick()
		}
		for range 2 {
			if run := f.next(nil); len(run) == 1 {
				replies = append(replies, run...)
			} else {
				must.Equal(t, len(run), longestRun, "outboxes of a run")
				events = append(events, run...)
			}
		}
		must.Equal(t, len(replies), i+1, "replies")
	}
	must.That(t, replies[0] == watchers[len(watchers)-1], "the reply to the change comes late")
	must.That(t, slices.Equal(replies[1:], others[1:]), "the replies come in another order")
	for f.waiting() > 0 {
		events = f.next(events)
	}
	must.That(t, slices.Equal(events, watchers), "the events come in another order")
}

// A client that takes nothing for stuckTime while its bounds are exceeded is closed, and no other.
func TestOutboxAcceptsUpToItsBounds(t *testing.T) {
	const due, fresh = stuckTime, stuckTime - time.Minute
	for _, x := range []struct {
		name          string
		bytes, frames int
		state         outboxState
		stuck         time.Duration // since when; 0: unknown
		want          bool
	}{
		{"empty", 0, 0, outboxOpen, 0, true},
		{"below both bounds", 99, 2, outboxOpen, due, true},
		{"as many bytes", 100, 2, outboxOpen, due, false},
		{"as many frames", 99, 3, outboxOpen, due, false},
		{"seen for the first time", 100, 3, outboxOpen, 0, true},
		{"something was taken lately", 100, 3, outboxOpen, fresh, true},
		{"ending", 0, 0, outboxEnding, 0, false},
		{"dead", 0, 0, outboxDead, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, c := quiet(t, Options{MaxOutboxBytes: 100, MaxOutboxFrames: 3})
			o := &c.out
			o.frames, o.state, o.buf = x.frames, x.state, make([]byte, x.bytes)
			if x.stuck != 0 {
				o.stuck = s.now() - x.stuck
			}
			expect.Equal(t, c.accepts(), x.want, "accepts")
			want := x.state
			if x.state == outboxOpen && !x.want {
				want = outboxDead
				expect.Equal(t, o.why, ends.Slow)
			}
			expect.Equal(t, o.state, want, "state")
			c.out.buf = nil
		})
	}
}

// Events go beside short replies in one piece, and long ones are not copied.
func TestEventsInAnOutbox(t *testing.T) {
	long := make([]byte, 2*quickSize)
	for _, x := range []struct {
		name     string
		has      int // bytes of replies
		room     int // for more
		all      []byte
		from, to int
		counted  bool
		shared   bool
		writes   int
	}{
		{"nothing is there", 0, 0, long[:50], 0, 50, false, true, 1},
		{"an empty buffer", 0, 100, long[:50], 0, 50, false, false, 1},
		{"behind a reply", 10, 100, long[:50], 0, 50, false, false, 1},
		{"a small part", 0, 0, long, 0, 50, false, false, 1},
		{"a small part that is counted", 0, 0, long, 0, 50, true, true, 1},
		{"a long part", 10, 100, long, 0, quickSize, true, true, 2},
		{"a long part that is not counted", 10, 100, long, 0, quickSize, false, true, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, c := quiet(t, Options{})
			var l *budget.Loan
			if x.counted {
				l, _ = s.memory.Lend(&c.from.account, budget.NewPortion(len(x.all)), false, false)
			}
			var o outbox
			if x.room > 0 {
				o.buf = make([]byte, x.has, keepSize)
			}
			expect.Equal(t, o.tell(x.all, x.from, x.to, 1, l), x.shared, "shared")
			expect.Equal(t, o.size(), x.has+x.to-x.from, "bytes")
			expect.Equal(t, o.lent > 0, x.counted, "counted as a loan")
			l.Put() // as the portion is over
			writes := 0
			for ; !o.empty(); writes++ {
				p, _ := o.take()
				o.give(p)
			}
			expect.Equal(t, writes, x.writes, "writes")
			expect.Equal(t, o.lent+s.memory.Used()+int(c.from.account.Buffers()), 0, "bytes that are lent")
		})
	}
	var o outbox // a reply behind an event that waits alone
	o.tell(long[:50], 0, 50, 1, nil)
	o.append([]byte("reply"))
	p, frames := o.take()
	expect.Equal(t, len(p.b), 55, "bytes of the first write")
	expect.Equal(t, frames, 2)
}

// The first reason for an end is the one that counts, and what is dead holds nothing.
func TestEndsOfAnOutbox(t *testing.T) {
	o := outbox{reserved: 5, queue: queue{buf: []byte("b"), spare: []byte("s"),
		full: []piece{{b: []byte("f")}}, fullLen: 1}}
	o.end(ends.Auth)
	o.end(ends.Slow)
	expect.Equal(t, o.state, outboxEnding, "ending: o.state")
	expect.Equal(t, o.why, ends.Auth, "ending: o.why")
	expect.Equal(t, o.size(), 2, "ending: o.size()")
	o.die(ends.Slow)
	o.end(ends.Session)
	expect.Equal(t, o.state, outboxDead, "dead: o.state")
	expect.Equal(t, o.why, ends.Auth, "dead: o.why")
	expect.Equal(t, o.size(), 0, "dead: o.size()")
	expect.That(t, o.spare == nil, "dead: %v, %v: want o.spare == nil", o.state, o.why)
	expect.That(t, o.full == nil, "dead: %v, %v: want o.full == nil", o.state, o.why)
	expect.That(t, o.buf == nil, "dead: %v, %v: want o.buf == nil", o.state, o.why)
	expect.Equal(t, o.reserved, 0, "dead: o.reserved")
	o = outbox{}
	o.die(ends.Moved)
	expect.Equal(t, o.why, ends.Moved)
}

// A reply that is an error has no record, except where the protocol says so, and is counted as a frame.
func TestRepliesOfAnOutbox(t *testing.T) {
	for _, x := range []struct {
		code  jute.ErrCode
		whole bool
		want  string
	}{
		{jute.OK, false, "record"}, {jute.NoNode, false, ""}, {jute.NoNode, true, "record"}, {jute.OK, true, "record"},
	} {
		var o outbox
		o.append([]byte("before"))
		b, at := o.beginReply(7, 9, 6)
		must.Equal(t, at, 6)
		if b = append(b, "record"...); x.whole {
			o.endWhole(b, at, x.code)
		} else {
			o.endReply(b, at, x.code)
		}
		f := must.Get(wire.DecodeFrame(o.buf[10:]))(t)
		expect.Equal(t, f.Xid, 7, "f.Xid")
		expect.Equal(t, f.Zxid, 9, "f.Zxid")
		expect.Equal(t, f.Code, x.code, "f.Code")
		expect.Equal(t, string(f.Body), x.want, "string(f.Body)")
		expect.Equal(t, int(o.buf[9]), jute.ReplyHeaderSize+len(x.want), "length of the frame")
		expect.Equal(t, o.frames, 2)
	}
}

// Buffers of a usual length are kept for the next time, long ones are not.
func TestBuffersOfAnOutboxAreKept(t *testing.T) {
	var o outbox
	usual, other := make([]byte, 5, keepSize), make([]byte, 5, keepSize)
	o.give(piece{b: usual})
	expect.Equal(t, cap(o.buf), keepSize, "the first is not kept: cap(o.buf)")
	if expect.Equal(t, len(o.buf), 0, "the first is not kept: len(o.buf)") {
		expect.That(t, o.spare == nil, "the first is not kept: want o.spare == nil")
	}
	o.give(piece{b: other})
	expect.Equal(t, cap(o.spare), keepSize, "the second is not kept: cap(o.spare)")
	expect.Equal(t, len(o.spare), 0, "the second is not kept: len(o.spare)")
	o = outbox{}
	o.give(piece{b: make([]byte, 5, keepSize+1)})
	expect.That(t, o.buf == nil, "a long buffer is kept: want o.buf == nil")
	expect.That(t, o.spare == nil, "a long buffer is kept: want o.spare == nil")
	o.state = outboxDead
	o.give(piece{b: usual})
	expect.That(t, o.buf == nil, "what is dead keeps a buffer: want o.buf == nil")
	expect.That(t, o.spare == nil, "what is dead keeps a buffer: want o.spare == nil")

	// A buffer of up to quickSize grows, a longer one ends.
	for n, full := range map[int]int{quickSize: 0, quickSize + 1: 1} {
		o = outbox{queue: queue{buf: make([]byte, n)}}
		o.room(keepSize)
		if expect.Equal(t, len(o.full), full, "room behind %d bytes: len(o.full)", n) {
			expect.Equal(t, o.size(), n, "room behind %d bytes: o.size()", n)
			expect.That(t, cap(o.buf)-len(o.buf) >= keepSize,
				"room behind %d bytes: %d buffers, %d of %d bytes: want cap(o.buf)-len(o.buf) >= keepSize",
				n, len(o.full), len(o.buf), cap(o.buf))
		}
	}
	o = outbox{}
	o.cut()
	expect.Equal(t, len(o.full), 0, "buffers without bytes")
	for _, b := range []string{"one", "two"} {
		o.buf = []byte(b)
		o.cut()
	}
	for _, b := range []string{"one", "two"} {
		got, _ := o.take()
		expect.Equal(t, string(got.b), b)
	}
	expect.That(t, o.full == nil,
		"what is written keeps a list of buffers: want o.full == nil")
	expect.Equal(t, o.fullLen, 0, "what is written keeps a list of buffers: o.fullLen")
}

// The pending requests that may change how long answers are, counted.
func TestLongPendingRequestsAreCounted(t *testing.T) {
	var o outbox
	for i := range 10 {
		o.push(pending{xid: int32(i), long: i%3 == 0, parked: []byte("x")})
	}
	for _, want := range []int{4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 0} {
		expect.Equal(t, o.long, want, "%d are pending", o.pendingLen())
		if o.pendingLen() > 0 {
			o.pop()
		}
	}
	for _, p := range o.pend[:10] {
		expect.That(t, p.parked == nil, "the frame of request %d is kept", p.xid)
	}
}

// A single reply is written at once, others by flushers. Few events come before replies.
func TestBatchesOfOutboxes(t *testing.T) {
	for n, lane := range map[int]int{1: 0, 2: 0, herd - 1: 0, herd: 1, herd + 1: 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var f flushers
			f.cond.L = &f.mu
			f.kick()
			must.Equal(t, f.waiting(), 0)
			conns := make([]*conn, n)
			for i := range conns {
				conns[i] = new(conn)
			}
			reply := new(conn)
			f.touch(reply)
			f.told(conns)
			f.kick()
			expect.Equal(t, len(f.batch)+len(f.heard), 0, "left in the batch")
			for _, c := range slices.Concat(f.batch[:cap(f.batch)], f.heard[:cap(f.heard)]) {
				expect.That(t, c == nil, "the batch keeps connections")
			}
			var got []*conn
			if lane == 1 {
				must.Equal(t, f.lanes[0].waiting(), 1, "replies")
				must.That(t, f.lanes[0].next() == reply, "another reply")
			}
			for f.waiting() > 0 {
				got = f.next(got)
			}
			if lane == 0 {
				conns = append(conns, reply)
			}
			must.That(t, slices.Equal(got, conns), "another order")
			for _, c := range f.lanes[lane].queue[:cap(f.lanes[lane].queue)] {
				expect.That(t, c == nil, "the lane keeps connections")
			}
		})
	}
}

// The sizes of replies are counted without their prefix, also of one that was built behind a gap; events are no
// replies.
func TestSizesOfRepliesAreCounted(t *testing.T) {
	var o outbox
	var m admin.Metrics
	wrote := func() admin.Sizes {
		o.stat.Wrote(1, 1, &m)
		return m.Responses.Value()
	}
	o.append(make([]byte, 500))
	expect.Equal(t, wrote(), admin.Sizes{Last: -1, Min: -1, Max: -1}, "an event")
	b, at := o.beginReply(1, 1, 100)
	o.endReply(append(b, make([]byte, 100)...), at, jute.OK)
	const first = jute.ReplyHeaderSize + 100
	expect.Equal(t, wrote(), admin.Sizes{Last: first, Min: first, Max: first}, "a reply")
	o.openGap()
	o.fill(piece{b: make([]byte, 4+50)})
	expect.Equal(t, wrote(), admin.Sizes{Last: 50, Min: 50, Max: first}, "a reply behind a gap")
	o.openGap()
	o.end(ends.Gone)
	o.fill(piece{b: make([]byte, 4+10)})
	expect.Equal(t, wrote(), admin.Sizes{Last: 50, Min: 50, Max: first}, "a reply that is too late")
}

// Events of a setWatches count among the frames that a connection may leave unread.
func TestMissedEventsAreCountedAsFrames(t *testing.T) {
	_, c := quiet(t, Options{MaxOutboxFrames: 3})
	c.out.touched = true // no flusher is to come
	u := &catchUp{c: c, open: true}
	for n := range 5 {
		c.out.stuck = -stuckTime // its client has taken nothing for so long
		expect.Equal(t, u.open, n <= 3, "open before event %d", n+1)
		u.tell(jute.EventCreated, "/a")
		expect.Equal(t, c.out.frames, min(n+1, 3), "frames behind event %d", n+1)
	}
}

// The events of a long setWatches leave with the paths that have been compared: they do not wait for the rest.
func TestMissedEventsLeaveInPieces(t *testing.T) {
	s := must.Get(New(Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	client, server := net.Pipe()
	var got atomic.Int64
	go func() {
		buf := make([]byte, 32<<10)
		for n, err := client.Read(buf); err == nil; n, err = client.Read(buf) {
			got.Add(int64(n))
		}
	}()
	c := newConn(s, server, nil)
	c.from = new(address)
	c.proof.ids.Store(identity.Unproved("127.0.0.1", false))
	c.replica = still{state.New("test")}
	c.out.touched = true // no flusher is to come
	u, path := newCatchUp(c, 0), "/"+strings.Repeat("p", 2000)
	for first := true; first || u.n > 0; first = false {
		must.That(t, u.add(&u.step.Data, path), "the connection ended: %v", c.out.why)
	}
	eventually(t, "the events of these paths", func() bool { return got.Load() >= flushSize })
	c.close(ends.Stopped)
	client.Close()
	must.OK(t, s.Shutdown(t.Context()))
}
