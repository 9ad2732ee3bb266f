package clients

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// However large a change is, each client gets all of its events if it reads them. The clients have one
// address, and the server has its default limits. For all of them it keeps one copy of the events.
func TestAllWhoReadHearOfALargeChange(t *testing.T) {
	// Bytes that are charged for an event, and for the outbox of a watcher that lags behind.
	const shortest, longest, outbox = 50, 100, 256 << 10
	for _, x := range []struct {
		watchers, nodes int
		conns           int // limit of connections from the address; 0: the default
		long            bool
	}{
		{20, 5_000, 0, false}, {40, 2_500, 0, true}, {20, 10_000, 0, true}, {2, 60_000, -1, true}, {2, 60_000, 0, true},
	} {
		t.Run(fmt.Sprintf("%d of %d nodes, %d", x.watchers, x.nodes, x.conns), func(t *testing.T) {
			if x.long && testing.Short() {
				t.Skip("the shortest of these is enough")
			}
			r := newRig(t, options.Options{MaxConnsPerAddr: x.conns})
			owner := r.client()
			create(t, owner, "/registry", "", 0)
			var watchers []*wire.Conn
			for range x.watchers {
				c := r.client()
				must.OK(t, c.AddWatch("/registry", jute.AddWatchRecursive))
				watchers = append(watchers, c)
			}
			from := r.srv.conns.Of(owner.Session.ID).Account()
			runtime.GC()
			heap := &heapPeak{before: inUse()}
			var wg sync.WaitGroup
			for i, c := range watchers {
				wg.Go(func() {
					for _, want := range []jute.EventType{jute.EventCreated, jute.EventDeleted} {
						for n := range x.nodes {
							f, err := c.Next()
							if err != nil || f.Event == nil || f.Event.Type != want ||
								want == jute.EventCreated && f.Event.Path != fmt.Sprintf("/registry/server-%09d", n) {
								t.Errorf("watcher %d, event %d: %+v, %v", i, n, f, err)
								return
							}
							if n%1000 == 0 {
								heap.grown()
							}
						}
					}
				})
			}
			for n := 0; n < x.nodes; n += 500 {
				var p batch
				for i := range 500 {
					p.add(jute.OpCreate, wire.Create(fmt.Sprintf("/registry/server-%09d", n+i), nil, jute.WorldAnyone,
						jute.FlagEphemeral))
				}
				must.OK(t, owner.WriteRaw(p.b))
				for range 500 {
					must.Get(owner.Next())(t)
				}
			}
			must.OK(t, owner.CloseSession())
			wg.Wait()
			eventually(t, "all memory is given back", func() bool { return r.measured("buffer_bytes") == 0 })
			charged, grown := r.srv.conns.Memory.Most()+int(from.Watches()), heap.most.Load()
			t.Logf("the address was charged %d KiB; the heap grew by %d MiB", charged>>10, grown>>20)
			expect.That(t, charged < mostOfAnAddress, "the address was charged %d bytes", charged)
			expect.That(t, grown < mostOfAnAddress, "the heap grew by %d bytes", grown)
			// The events of a change are charged, once for all watchers of the address.
			expect.That(t, charged >= x.nodes*shortest, "the address was charged %d bytes, want %d or more", charged,
				x.nodes*shortest)
			most := x.nodes*longest + x.watchers*outbox
			expect.That(t, charged <= most, "the address was charged %d bytes, want at most %d", charged, most)
		})
	}
}

// mostOfAnAddress is by how many bytes the clients of one address may raise the memory of a server, as
// docs/limits.md says.
const mostOfAnAddress = 256 << 20

// heapPeak is the largest growth of the heap at the moments at which grown() is called.
type heapPeak struct {
	before int64
	most   atomic.Int64
}

func (p *heapPeak) grown() {
	now := inUse() - p.before
	for had := p.most.Load(); now > had && !p.most.CompareAndSwap(had, now); had = p.most.Load() {
	}
}

// inUse() returns the bytes of the heap, with those that the garbage collector has not freed yet.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client that does not read its events is closed. A client that reads them stays.
func TestWatcherThatDoesNotReadIsClosed(t *testing.T) {
	r := newRig(t, options.Options{MaxOutboxFrames: 1000})
	owner, reads, deaf := r.client(), r.client(), r.client()
	for _, c := range []*wire.Conn{reads, deaf} {
		must.OK(t, c.AddWatch("/", jute.AddWatchRecursive))
	}
	var heard atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() {
		for f, err := reads.Next(); ; f, err = reads.Next() {
			if !expect.OK(t, err) || f.Event.Path == "/end" {
				return
			}
			heard.Add(1)
		}
	})
	name := strings.Repeat("x", 1000)
	deadline := time.Now().Add(time.Minute)
	for rounds := int32(1); r.srv.conns.Counts.Ends[ends.Slow].Load() == 0; rounds++ {
		must.That(t, time.Now().Before(deadline), "the client that does not read is still there")
		c := r.client()
		var p batch
		for i := range 500 {
			p.add(jute.OpCreate, wire.Create(fmt.Sprint("/", name, i), nil, jute.WorldAnyone, jute.FlagEphemeral))
		}
		must.OK(t, c.WriteRaw(p.b))
		for range 500 {
			must.Get(c.Next())(t)
		}
		must.OK(t, c.CloseSession())
		// However slow this machine is, the client that reads lags behind by one round at most.
		eventually(t, "the client that reads has heard of all", func() bool { return heard.Load() == 1000*rounds })
	}
	create(t, owner, "/end", "", 0)
	wg.Wait()
	expect.Equal(t, r.srv.conns.Counts.Ends[ends.Slow].Load(), 1, "closed")
}
