package outbox

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/metrics"
)

// The functions of this file are only for tests, in packages that use outboxes.

// Look is what an outbox shows to a test.
type Look struct {
	State               string // open, ending or dead
	Why                 ends.Reason
	Frames, Lent, Held  int
	Buf                 []byte // the bytes that wait, without long frames
	Waiting             []Pending
	Closing             bool
	Flushing, Reserving bool
}

// Look returns the state of an outbox that no other goroutine uses.
func (o *Outbox) Look() Look {
	return Look{State: [...]string{"open", "ending", "dead"}[o.state], Why: o.why, Frames: o.frames,
		Lent: o.lent, Held: o.held, Buf: o.buf, Waiting: o.pend[o.pendHead:], Closing: o.closing,
		Flushing:  o.flushing,
		Reserving: o.reserved > 0}
}

// Hush keeps flushers away from the outbox: it seems to wait for one already.
func (o *Outbox) Hush() { o.touched = true }

// Ignore makes the outbox look as if it held `frames` frames and the client had read none of them for longer
// than stuckTime.
func (o *Outbox) Ignore(frames int) {
	o.Lock()
	defer o.Unlock()
	o.frames, o.stuck = frames, -stuckTime
}

// Pretend sets the fields that a running flush and a reserved long reply would set.
func (o *Outbox) Pretend(flushing, waiting bool, writing, reserved int) {
	o.flushing, o.waiting, o.writing, o.reserved = flushing, waiting, writing, reserved
}

// Write continues the running flush until it ends.
func (o *Outbox) Write() { o.write(true) }

// Empty removes all that waits, and returns the bytes and the number of frames.
func (o *Outbox) Empty() (b []byte, frames int) {
	frames = o.frames
	for o.Size() > 0 {
		p, _ := o.take()
		b = append(b, slices.Clone(p.b)...)
		o.give(p)
	}
	return b, frames
}

// Discard drops the frames that wait in buffers of the outbox itself.
func (o *Outbox) Discard() {
	o.Lock()
	defer o.Unlock()
	o.buf, o.frames = o.buf[:0], 0
}

// StuckTime is how long a client with a full outbox may read nothing.
func StuckTime() time.Duration { return stuckTime }

// Due returns how many outboxes of the present batch have replies, and which have events.
func (f *Flushers) Due() (replies int, events []*Outbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.batch), slices.Clone(f.heard)
}

// Stub is a connection that has an outbox, and nothing else.
type Stub struct {
	Outbox
	account *budget.Account
	number  uint64
}

// NewStub returns a connection whose socket accepts no bytes. `account` counts its memory.
func NewStub(s *Shared, account *budget.Account) *Stub {
	c := &Stub{account: account, number: stubs.Add(1)}
	c.Init(s, c, &net.TCPConn{}, nil)
	return c
}

// stubs counts the stubs made so far.
var stubs atomic.Uint64

// Account implements Owner, as do the next four methods.
func (c *Stub) Account() *budget.Account { return c.account }
func (c *Stub) Number() uint64           { return c.number }
func (c *Stub) Alive()                   {}
func (c *Stub) CountWatches()            {}
func (c *Stub) Wake()                    {}

// Idle returns the shared parts of the outboxes of a server that does nothing, and the function that ends
// them.
func Idle(maxBytes, maxFrames, buffers int, shares *budget.Shares) (s *Shared, end func()) {
	const many = 1 << 40
	stop, began := make(chan struct{}), time.Now()
	var wg sync.WaitGroup
	s = &Shared{Memory: new(budget.Memory), Metrics: new(metrics.Set), MaxBytes: cmp.Or(maxBytes, many),
		MaxFrames: cmp.Or(maxFrames, many), Now: func() time.Duration { return time.Since(began) }, Go: wg.Go}
	m := s.Memory
	m.Limit, m.Shares, m.Now, m.Done = cmp.Or(buffers, many), shares, s.Now, stop
	m.Waits = func() {}
	s.Start(&wg)
	return s, func() {
		close(stop)
		s.Stop()
		wg.Wait()
	}
}

// Keep gives a connection memory, and dates its last progress back by an hour.
func (s *Shared) Keep(c budget.Holder, part budget.Part, n int) bool {
	s.Memory.Now = func() time.Duration { return -time.Hour }
	defer func() { s.Memory.Now = s.Now }()
	return s.Memory.Try(c, part, n, true)
}
