package state

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

var costly = flag.Int("state.tickets", 5_000, "tickets and sessions of TestTicketsCostWhatSessionsCost")

// A ticket costs as much memory and room in a snapshot as a session with a contender and its directory.
func TestTicketsCostWhatSessionsCost(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector changes what memory costs")
	}
	const owner = `{"host":"web1.example.com","user":"ci-417","reason":"deploy of web"}`
	type cost struct{ memory, snapshot int }
	measure := func(name string, one func(b *ticketBench, n int)) (c cost) {
		b := newTicketBench(t)
		heap := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		written := func() int {
			var to bytes.Buffer
			snap := b.s.StartSnapshot(Position{Index: 7, Term: 3})
			defer snap.Close()
			must.OK(t, snap.Write(&to, func(read func()) { read() }))
			return to.Len()
		}
		empty, first, began := written(), heap(), time.Now()
		for n := range *costly {
			one(b, n)
		}
		took := time.Since(began)
		b.got.outcomes, b.got.zxids, b.got.endings = nil, nil, nil
		c.memory, c.snapshot = (heap()-first) / *costly, (written()-empty) / *costly
		t.Logf("%d %s: %d bytes of memory and %d of a snapshot each, %v", *costly, name, c.memory, c.snapshot,
			took/time.Duration(*costly))
		runtime.KeepAlive(b)
		return c
	}
	dir := func(n int) string { return fmt.Sprintf("/ci/%d", n/10) } // ten tickets in each queue
	sessions := measure("sessions", func(b *ticketBench, n int) {
		s := b.session()
		if n == 0 {
			b.do(create(s, "/ci", 0))
		}
		if n%10 == 0 {
			b.do(create(s, dir(n), 0))
		}
		body := jute.AppendBuffer(jute.AppendString(nil, dir(n)+"/_c_x-lock-"), []byte(owner))
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), jute.FlagEphemeralSequential)
		must.Equal(t, b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: body})[0].Code, jute.OK)
	})
	tickets := measure("tickets", func(b *ticketBench, n int) {
		o := openingOf(1, dir(n))
		o.Hash, o.Data = session.Hash(sha256.Sum256(fmt.Append(nil, n))), []byte(owner)
		o.TicketBounds = TicketBounds{All: int32(*costly), Identity: int32(*costly), Path: 10}
		must.Equal(t, b.do(o.Open(testIDs))[0].Code, jute.OK)
	})
	expect.That(t, tickets.memory <= 2*sessions.memory, "a ticket takes %d bytes, a session %d", tickets.memory,
		sessions.memory)
	expect.That(t, tickets.snapshot <= 2*sessions.snapshot, "a ticket takes %d bytes of a file, a session %d",
		tickets.snapshot, sessions.snapshot)
}
