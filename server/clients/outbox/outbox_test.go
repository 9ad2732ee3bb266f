package outbox

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Replies are written in order, each once. A long reply, which is built while others are added, is written in
// the place that was left for it.
func TestOutboxKeepsItsOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var o Outbox
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
				o.OpenGap()
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
					o.Append(f)
				} else { // events: the middle part of a buffer that several outboxes share
					all := slices.Concat(frame(), f, frame())
					at := bytes.Index(all, f)
					if o.Tell(all, at, at+len(f), 1, nil) {
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
			n := len(want) + len(behind) - len(got)
			must.Equal(t, o.Size(), n, "seed %d: size", seed)
			must.Equal(t, o.empty(), len(want) == len(got), "seed %d: empty", seed)
		}
		if r.IntN(2) == 0 && o.gap { // the connection ends before the reply is there
			o.End(ends.Gone)
			o.fill(piece{b: frame()})
			behind = nil
		}
		for !o.empty() {
			take()
		}
		must.That(t, bytes.Equal(got, want),
			"seed %d: %d bytes in %d frames were written, want %d in %d: want bytes.Equal(got, want)",
			seed, len(got), wrote, len(want), frames)
		must.That(t, o.state != open || behind != nil || wrote == frames,
			"seed %d: %d bytes in %d frames were written, want %d in %d",
			seed, len(got), wrote, len(want), frames)
		for i := range shared {
			must.That(t, bytes.Equal(shared[i], copies[i]), "seed %d: a shared buffer was written to", seed)
		}
	}
}

// An outbox with very many events takes little more memory than the events, because no buffer grows by
// copying.
func TestLongOutboxIsNotCopied(t *testing.T) {
	var o Outbox
	frame := make([]byte, 900)
	for o.Size() < 8<<20 {
		o.Append(frame)
	}
	room := cap(o.buf)
	for _, p := range o.full {
		room += cap(p.b)
	}
	expect.That(t, room <= o.Size()+o.Size()/4, "%d bytes of buffers for %d", room, o.Size())
	first := &o.full[0].b[0]
	o.Append(make([]byte, 1<<20))
	expect.Equal(t, first, &o.full[0].b[0], "the first buffer has moved")
}

// An event may fill very many outboxes. Each reply then waits for at most one group of them, even the reply
// to the client that made the change. Each of these outboxes in turn waits for at most one group of replies.
func TestRepliesDoNotWaitForAHerd(t *testing.T) {
	var f Flushers
	f.cond.L = &f.mu
	watchers, others := make([]*Outbox, 10*herd), make([]*Outbox, herd)
	for i := range watchers {
		watchers[i] = new(Outbox)
	}
	for i := range others {
		others[i] = new(Outbox)
	}
	f.Told(watchers)
	f.touch(watchers[len(watchers)-1]) // this client has made the change
	f.Kick()
	var replies, events []*Outbox
	for i := range others {
		if i > 0 {
			f.touch(others[i])
			f.Kick()
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

// A client is closed only if it reads nothing for stuckTime while its outbox exceeds a bound.
func TestOutboxAcceptsUpToItsBounds(t *testing.T) {
	const due, fresh = stuckTime, stuckTime - time.Minute
	for _, x := range []struct {
		name          string
		bytes, frames int
		state         state
		stuck         time.Duration // how long the outbox has been stuck; 0: unknown
		want          bool
	}{
		{"empty", 0, 0, open, 0, true},
		{"below both bounds", 99, 2, open, due, true},
		{"as many bytes", 100, 2, open, due, false},
		{"as many frames", 99, 3, open, due, false},
		{"seen for the first time", 100, 3, open, 0, true},
		{"something was taken lately", 100, 3, open, fresh, true},
		{"ending", 0, 0, ending, 0, false},
		{"dead", 0, 0, dead, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, c := quiet(t, 100, 3, 0)
			o := &c.Outbox
			o.frames, o.state, o.buf = x.frames, x.state, make([]byte, x.bytes)
			if x.stuck != 0 {
				o.stuck = s.Now() - x.stuck
			}
			expect.Equal(t, c.Accepts(), x.want, "accepts")
			want := x.state
			if x.state == open && !x.want {
				want = dead
				expect.Equal(t, o.why, ends.Slow)
			}
			expect.Equal(t, o.state, want, "state")
			c.buf = nil
		})
	}
}

// Short events are copied and leave together with short replies. Long events are not copied.
func TestEventsInAnOutbox(t *testing.T) {
	long := make([]byte, 2*quickSize)
	for _, x := range []struct {
		name     string
		has      int // bytes of replies
		room     int // capacity for further bytes
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
			s, c := quiet(t, 0, 0, 0)
			var l *budget.Loan
			if x.counted {
				l, _ = s.Memory.Lend(c.account, budget.NewPortion(len(x.all)), false, false)
			}
			var o Outbox
			if x.room > 0 {
				o.buf = make([]byte, x.has, KeepSize)
			}
			expect.Equal(t, o.Tell(x.all, x.from, x.to, 1, l), x.shared, "shared")
			expect.Equal(t, o.Size(), x.has+x.to-x.from, "bytes")
			expect.Equal(t, o.lent > 0, x.counted, "counted as a loan")
			l.Put() // the portion is no longer needed for other outboxes
			writes := 0
			for ; !o.empty(); writes++ {
				p, _ := o.take()
				o.give(p)
			}
			expect.Equal(t, writes, x.writes, "writes")
			expect.Equal(t, o.lent+s.Memory.Used()+int(c.account.Buffers()), 0, "bytes that are lent")
		})
	}
	var o Outbox // a reply that follows a single waiting event
	o.Tell(long[:50], 0, 50, 1, nil)
	o.Append([]byte("reply"))
	p, frames := o.take()
	expect.Equal(t, len(p.b), 55, "bytes of the first write")
	expect.Equal(t, frames, 2)
}

// If an outbox is ended more than once, the first reason counts. A closed outbox keeps no bytes and no
// reserved memory.
func TestEndsOfAnOutbox(t *testing.T) {
	o := Outbox{holding: holding{reserved: 5}, queue: queue{buf: []byte("b"), spare: []byte("s"),
		full: []piece{{b: []byte("f")}}, fullLen: 1}}
	o.End(ends.Auth)
	o.End(ends.Slow)
	expect.Equal(t, o.state, ending, "ending: o.state")
	expect.Equal(t, o.why, ends.Auth, "ending: o.why")
	expect.Equal(t, o.Size(), 2, "ending: o.Size()")
	o.Die(ends.Slow)
	o.End(ends.Session)
	expect.Equal(t, o.state, dead, "dead: o.state")
	expect.Equal(t, o.why, ends.Auth, "dead: o.why")
	expect.Equal(t, o.Size(), 0, "dead: o.Size()")
	expect.That(t, o.spare == nil, "dead: %v, %v: want o.spare == nil", o.state, o.why)
	expect.That(t, o.full == nil, "dead: %v, %v: want o.full == nil", o.state, o.why)
	expect.That(t, o.buf == nil, "dead: %v, %v: want o.buf == nil", o.state, o.why)
	expect.Equal(t, o.reserved, 0, "dead: o.reserved")
	o = Outbox{}
	o.Die(ends.Moved)
	expect.Equal(t, o.why, ends.Moved)
}

// A reply with an error has no record, except where the protocol demands one. Each reply counts as a frame.
func TestRepliesOfAnOutbox(t *testing.T) {
	for _, x := range []struct {
		code  jute.ErrCode
		whole bool
		want  string
	}{
		{jute.OK, false, "record"}, {jute.NoNode, false, ""}, {jute.NoNode, true, "record"}, {jute.OK, true, "record"},
	} {
		var o Outbox
		o.Append([]byte("before"))
		b, at := o.BeginReply(7, 9, 6)
		must.Equal(t, at, 6)
		if b = append(b, "record"...); x.whole {
			o.EndWhole(b, at, x.code)
		} else {
			o.EndReply(b, at, x.code)
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

// An outbox keeps buffers of the usual length for reuse, but not long ones.
func TestBuffersOfAnOutboxAreKept(t *testing.T) {
	var o Outbox
	usual, other := make([]byte, 5, KeepSize), make([]byte, 5, KeepSize)
	o.give(piece{b: usual})
	expect.Equal(t, cap(o.buf), KeepSize, "the first is not kept: cap(o.buf)")
	if expect.Equal(t, len(o.buf), 0, "the first is not kept: len(o.buf)") {
		expect.That(t, o.spare == nil, "the first is not kept: want o.spare == nil")
	}
	o.give(piece{b: other})
	expect.Equal(t, cap(o.spare), KeepSize, "the second is not kept: cap(o.spare)")
	expect.Equal(t, len(o.spare), 0, "the second is not kept: len(o.spare)")
	o = Outbox{}
	o.give(piece{b: make([]byte, 5, KeepSize+1)})
	expect.That(t, o.buf == nil, "a long buffer is kept: want o.buf == nil")
	expect.That(t, o.spare == nil, "a long buffer is kept: want o.spare == nil")
	o.state = dead
	o.give(piece{b: usual})
	expect.That(t, o.buf == nil, "what is dead keeps a buffer: want o.buf == nil")
	expect.That(t, o.spare == nil, "what is dead keeps a buffer: want o.spare == nil")

	// room() lets a buffer of up to quickSize bytes grow. After a longer buffer it begins another one.
	for n, full := range map[int]int{quickSize: 0, quickSize + 1: 1} {
		o = Outbox{queue: queue{buf: make([]byte, n)}}
		o.room(KeepSize)
		if expect.Equal(t, len(o.full), full, "room behind %d bytes: len(o.full)", n) {
			expect.Equal(t, o.Size(), n, "room behind %d bytes: o.Size()", n)
			expect.That(t, cap(o.buf)-len(o.buf) >= KeepSize,
				"room behind %d bytes: %d buffers, %d of %d bytes: want cap(o.buf)-len(o.buf) >= KeepSize",
				n, len(o.full), len(o.buf), cap(o.buf))
		}
	}
	o = Outbox{}
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

// The outbox counts the pending requests that may change the length of answers.
func TestLongPendingRequestsAreCounted(t *testing.T) {
	var o Outbox
	for i := range 10 {
		o.Push(Pending{Xid: int32(i), Long: i%3 == 0, Parked: []byte("x")})
	}
	for _, want := range []int{4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 0} {
		expect.Equal(t, o.long, want, "%d are pending", o.Pending())
		if o.Pending() > 0 {
			o.Pop()
		}
	}
	for i, p := range o.pend[:10] {
		expect.That(t, p.Parked == nil, "the frame of request %d is kept", i)
	}
}

// Nothing of an answered request stays in the queue, also when the queue moves what still waits to its
// front.
func TestNothingIsKeptOfAnsweredRequests(t *testing.T) {
	var o Outbox
	const all, left = 200, 20
	for i := range all {
		o.Push(Pending{Xid: int32(i), Parked: []byte("x"), First: &FirstSize{Name: "n"},
			Followed: new(observe.Request)})
	}
	for range all - left {
		o.Pop()
	}
	kept := 0
	for _, p := range o.pend[:cap(o.pend)] {
		if p.Parked != nil || p.First != nil || p.Followed != nil {
			kept++
		}
	}
	expect.Equal(t, kept, left, "requests that are kept")
}

// Kick writes a single reply itself. It leaves more outboxes to the flushers. If few outboxes have events,
// the flushers write these before the outboxes with replies.
func TestBatchesOfOutboxes(t *testing.T) {
	for n, lane := range map[int]int{1: 0, 2: 0, herd - 1: 0, herd: 1, herd + 1: 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var f Flushers
			f.cond.L = &f.mu
			f.Kick()
			must.Equal(t, f.waiting(), 0)
			conns := make([]*Outbox, n)
			for i := range conns {
				conns[i] = new(Outbox)
			}
			reply := new(Outbox)
			f.touch(reply)
			f.Told(conns)
			f.Kick()
			expect.Equal(t, len(f.batch)+len(f.heard), 0, "left in the batch")
			for _, c := range slices.Concat(f.batch[:cap(f.batch)], f.heard[:cap(f.heard)]) {
				expect.That(t, c == nil, "the batch keeps connections")
			}
			var got []*Outbox
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

// The size of a reply is counted without its length prefix. This also holds for a late reply, for which the
// outbox has kept a gap. Events do not count as replies.
func TestSizesOfRepliesAreCounted(t *testing.T) {
	var o Outbox
	var m metrics.Set
	wrote := func() metrics.Sizes {
		o.Stat.Wrote(1, 1, &m)
		return m.Responses.Value()
	}
	o.Append(make([]byte, 500))
	expect.Equal(t, wrote(), metrics.Sizes{Last: -1, Min: -1, Max: -1}, "an event")
	b, at := o.BeginReply(1, 1, 100)
	o.EndReply(append(b, make([]byte, 100)...), at, jute.OK)
	const first = jute.ReplyHeaderSize + 100
	expect.Equal(t, wrote(), metrics.Sizes{Last: first, Min: first, Max: first}, "a reply")
	o.OpenGap()
	o.fill(piece{b: make([]byte, 4+50)})
	expect.Equal(t, wrote(), metrics.Sizes{Last: 50, Min: 50, Max: first}, "a reply behind a gap")
	o.OpenGap()
	o.End(ends.Gone)
	o.fill(piece{b: make([]byte, 4+10)})
	expect.Equal(t, wrote(), metrics.Sizes{Last: 50, Min: 50, Max: first}, "a reply that is too late")
}

func TestPendingRequestsAreAQueue(t *testing.T) {
	var o Outbox
	rng := rand.New(rand.NewPCG(3, 4))
	var in, out int32
	for range 20_000 {
		if rng.IntN(100) < 52 {
			o.Push(Pending{Xid: in})
			in++
		} else if o.Pending() > 0 {
			p := o.Front()
			must.Equal(t, p.Xid, out, "request %d", p.Xid)
			o.Pop()
			out++
		}
		must.Equal(t, o.Pending(), int(in-out), "%d pending, want %d", o.Pending(), in-out)
	}
	expect.That(t, cap(o.pend) <= 8*int(in-out)+256, "room for %d, %d pending", cap(o.pend), in-out)
}

// A buffer for a long reply is reused for the next reply of its length.
func TestBuffersOfLongRepliesAreUsedAgain(t *testing.T) {
	_, c := quiet(t, 0, 0, 0)
	again := func() bool { // the pool may forget a buffer at any time
		b := make([]byte, KeepSize+1)
		c.give(piece{b: b})
		return &longBuffer(len(b))[:1][0] == &b[0]
	}
	must.Await(t, "never: a buffer of just the length is used again", time.Minute, again)
}
