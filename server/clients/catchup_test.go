package clients

import (
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Events of a setWatches count among the frames that a connection may leave unread.
func TestMissedEventsAreCountedAsFrames(t *testing.T) {
	_, c := quiet(t, options.Options{MaxOutboxFrames: 3})
	c.out.Hush() // no flusher is to come
	u := &catchUp{c: c, open: true}
	for n := range 5 {
		c.out.Ignore(c.out.Look().Frames) // its client has taken nothing for this long
		expect.Equal(t, u.open, n <= 3, "open before event %d", n+1)
		u.tell(jute.EventCreated, "/a")
		expect.Equal(t, c.out.Look().Frames, min(n+1, 3), "frames behind event %d", n+1)
	}
}

// The events of a long setWatches leave with the paths that have been compared: they do not wait for the rest.
func TestMissedEventsLeaveInPieces(t *testing.T) {
	s := must.Get(New(options.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	client, server := net.Pipe()
	var got atomic.Int64
	go func() {
		buf := make([]byte, 32<<10)
		for n, err := client.Read(buf); err == nil; n, err = client.Read(buf) {
			got.Add(int64(n))
		}
	}()
	c := newConn(&s.shared, server, nil)
	c.from = new(address)
	c.proof.ids.Store(identity.Unproved("127.0.0.1", false))
	c.replica = still{state.New("test")}
	c.out.Hush() // no flusher is to come
	u, path := newCatchUp(c, 0), "/"+strings.Repeat("p", 2000)
	for first := true; first || u.n > 0; first = false {
		must.That(t, u.add(&u.step.Data, path), "the connection ended: %v", c.out.Look().Why)
	}
	eventually(t, "the events of these paths", func() bool { return got.Load() >= outbox.FlushSize })
	c.out.Close(ends.Stopped)
	client.Close()
	must.OK(t, s.Shutdown(t.Context()))
}
