package conn

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Events that a setWatches sends count among the frames that a connection may leave unread.
func TestMissedEventsAreCountedAsFrames(t *testing.T) {
	_, c := quiet(t, options.Options{MaxOutboxFrames: 3})
	c.out.Hush() // keeps the flushers from writing the outbox
	u := &catchUp{c: c, open: true}
	for n := range 5 {
		c.out.Ignore(c.out.Look().Frames) // as if the client had not read these frames for stuckTime
		expect.Equal(t, u.open, n <= 3, "open before event %d", n+1)
		u.tell(jute.EventCreated, "/a")
		expect.Equal(t, c.out.Look().Frames, min(n+1, 3), "frames behind event %d", n+1)
	}
}

// The events of a long setWatches are sent as soon as their paths have been compared. They do not wait for
// the rest of the frame.
func TestMissedEventsLeaveInPieces(t *testing.T) {
	s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
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
	c.proof.IDs.Store(identity.Unproved("127.0.0.1", false))
	c.replica = still{state.New("test")}
	c.out.Hush() // keeps the flushers from writing the outbox
	u, path := newCatchUp(c, 0), "/"+strings.Repeat("p", 2000)
	for first := true; first || u.n > 0; first = false {
		must.That(t, u.add(&u.step.Data, path), "the connection ended: %v", c.out.Look().Why)
	}
	must.Await(t, "the events of these paths are missing", time.Minute,
		func() bool { return got.Load() >= outbox.FlushSize })
	c.out.Close(ends.Stopped)
	client.Close()
}

// A setWatches that ends too early, or whose lengths are wrong, is malformed.
func TestPiecesOfASetWatches(t *testing.T) {
	text := wire.Body{}.Long(1 << 40).Int(7).Str("/a").Int(-1)
	for _, x := range []struct {
		name   string
		within int
		bytes  []byte
		want   string
		why    ends.Reason
	}{
		{"whole", len(text), text, "1099511627776 7 /a -1", ends.None},
		{"a byte is missing from the frame", len(text) - 1, text, "1099511627776 7 /a 0", ends.Malformed},
		{"nothing", 0, nil, "0 0  0", ends.Malformed},
		{"a null string", 16, wire.Body{}.Long(1).Int(2).Null(), "1 2  0", ends.Malformed},
		{"a longer string", 20, wire.Body{}.Long(1).Int(2).Int(5).Int(0), "1 2  0", ends.Malformed},
		{"a string beyond the frame limit", 1 << 20, wire.Body{}.Long(1).Int(2).Int(4097).Int(0),
			"1 2  0", ends.Malformed},
	} {
		_, c := quiet(t, options.Options{MaxFrame: 4096})
		c.reader.within = x.within
		c.reader.in.Put(append([]byte(nil), x.bytes...))
		p := pieces{c: c}
		got := fmt.Sprint(p.long(), " ", p.int(), " ", p.string(), " ", p.int())
		expect.Equal(t, got, x.want, "%s", x.name)
		expect.Equal(t, p.why, x.why, "%s: why", x.name)
		p.fail()
		expect.Equal(t, p.why, ends.Malformed, "%s", x.name)
		p.why = ends.Client
		p.fail()
		expect.Equal(t, p.why, ends.Client, "%s: p.why", x.name)
		expect.That(t, p.take(0) == nil,
			"%s: the first reason is another: want p.take(0) == nil", x.name)
	}
}
