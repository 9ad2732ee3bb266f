package conn

import (
	"context"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/rest"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/sasl"
)

// Shared holds what the connections of a server have in common. A connection knows nothing else of its
// server. `Options` and `front` are set before the first connection comes. Each part below says which
// goroutines may use it; the parts from other packages have locks of their own.
type Shared struct {
	Options options.Options
	front
	mechanisms atomic.Pointer[sasl.Mechanisms] // Change replaces them

	life
	clock
	Entrance entrance.Entrance
	registry
	admission
	figures

	Watches  watchers.Table
	Shares   budget.Shares
	Memory   budget.Memory
	Resting  rest.Rest
	Outboxes outbox.Shared
}

// New returns what the connections of a server share, before the first connection comes. The caller has
// filled in all defaults in o.
func New(o options.Options) *Shared {
	s := new(Shared)
	s.Options, s.start = o, time.Now()
	s.registry.init()
	s.Observed.Init(&s.Metrics, s.start, o.Now, o.Follow)
	s.Log.Init(o.Logger, s.Now)
	s.connecting = make(chan struct{}, maxConnecting)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Shares.Bytes = o.MaxWatchBytesPerConn
	s.Watches.Init(watchers.Bounds{PerConn: o.MaxWatchesPerConn, All: o.MaxWatches,
		BytesPerConn: o.MaxWatchBytesPerConn, Bytes: o.MaxWatchBytes}, &s.Shares, &s.Outboxes, s.watchersFrom)
	s.Memory.Limit, s.Memory.Shares, s.Memory.Now, s.Memory.Done = o.MaxBuffers, &s.Shares, s.Now, s.ctx.Done()
	s.Memory.Waits = func() { s.Metrics.Throttled.Add(1) }
	s.Outboxes.Memory, s.Outboxes.Metrics, s.Outboxes.Now, s.Outboxes.Go = &s.Memory, &s.Metrics, s.Now, s.wg.Go
	s.Outboxes.MaxBytes, s.Outboxes.MaxFrames = o.MaxOutboxBytes, o.MaxOutboxFrames
	s.Outboxes.Start(&s.wg)
	s.Resting.Start(s.wg.Go)
	s.Change(o)
	return s
}

// Words answers four-letter words; an admin.Admin implements it.
type Words interface {
	// IsWord reports whether the first four bytes of a connection are a word, and not the length of a frame.
	IsWord(first [4]byte) bool
	// Answer answers the word with which a connection began. It may read the word's arguments from conn,
	// which the caller closes.
	Answer(conn io.ReadWriter, first [4]byte) error
}

// front answers connections that ask for no session: four-letter words, and clients that speak HTTP.
type front struct {
	words    Words
	adminURL string // shown to clients that speak HTTP here
}

// life is how long the server runs: until cancel is called, and then until every goroutine has ended.
type life struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // counts every goroutine
}

// clock measures times since the server started. Only differences of such times have a meaning.
type clock struct {
	start time.Time // the moment at which Now would return 0
	// batch is when the first reply of the present batch was appended; 0: the batch has no reply yet. Only the
	// goroutine that applies the log uses it.
	batch time.Duration
}

// Now returns the time since the server started.
func (k *clock) Now() time.Duration { return time.Since(k.start) }

// batchTime returns the time at which the server answers the batch being applied. The goroutine
// that applies the log reads the clock once per batch.
func (k *clock) batchTime(o *state.Outcome) time.Duration {
	if k.batch == 0 && !o.Unknown {
		k.batch = k.Now()
	}
	return k.batch
}

// counts holds counters of events that ZooKeeper's metrics lack.
type counts struct {
	AcceptErrors atomic.Int64 // failed accepts
	Foreign      atomic.Int64 // connections with another protocol
	Refused      atomic.Int64 // clients told that their session has ended
	RefusedNew   atomic.Int64 // sessions refused because of a limit
	Divided      atomic.Int64 // contenders that --one-layout refused
	Ends         [ends.Reasons]atomic.Int64
}

// figures holds what the server shows to operators about its clients. Any goroutine may use it.
type figures struct {
	Metrics  metrics.Set
	Counts   counts
	Log      ends.Log
	Observed observe.Clients
}

// Change applies MaxConns, MaxConnsPerAddr and SASL of o, and reports whether the SASL users have changed.
// Existing connections, and identities that clients have proved, stay.
func (s *Shared) Change(o options.Options) (users bool) {
	o.BoundConns()
	s.mu.Lock()
	s.maxConns = o.MaxConns
	s.Shares.SetConns(o.MaxConnsPerAddr)
	for _, from := range s.perAddr {
		from.Account.Forgive() // the address may have had no bound so far: what it used then is not a debt
	}
	s.mu.Unlock()
	old := s.mechanisms.Swap(o.SASL)
	return old != nil && o.SASL != nil && !maps.Equal(old.Users, o.SASL.Users)
}

// Answer sets the answerer of four-letter words, and the URL that the server shows to clients that speak HTTP
// to the client port. Call it before Serve.
func (s *Shared) Answer(w Words, adminURL string) { s.words, s.adminURL = w, adminURL }
