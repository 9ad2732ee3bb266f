// Package budget bounds what the clients of one address may cost a server, and how much memory all
// connections may use. A connection appears here as a [Holder].
package budget

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/tree/bounds"
)

// Account records what the clients of one address cost this server: memory, and time under the state lock,
// counted in steps as in bounds.MaxSteps. An address may use a third of each second of the lock. Every server
// applies every write, so in a cluster the servers divide that third among them. When the address has used up
// its share, its connections wait without the lock and do not read their sockets, so that they delay no other
// address.
//
// The server charges an estimate for a write before it proposes it, so that writes under way also stay within
// the share. The outcome corrects the estimate.
type Account struct {
	owed atomic.Int64 // steps that the share has not yet paid for
	paid atomic.Int64 // time of the last payment, on the server's clock, ns

	buffers atomic.Int64 // bytes of frames and outboxes; changed under Memory.mu
	watches atomic.Int64 // bytes of watches at the last count
}

// Charge adds steps to the debt and does not wait; negative steps reduce the debt. The next request waits
// until the debt is paid.
func (a *Account) Charge(steps int64) { a.owed.Add(steps) }

// Owed returns the steps that are not paid yet.
func (a *Account) Owed() int64 { return a.owed.Load() }

// Forgive cancels the debt of the address.
func (a *Account) Forgive() { a.owed.Store(0) }

// SetWatches records how many bytes of watches the address has.
func (a *Account) SetWatches(bytes int) { a.watches.Store(int64(bytes)) }

// Watches returns the bytes that SetWatches last recorded.
func (a *Account) Watches() int64 { return a.watches.Load() }

// Buffers returns how many bytes the frames and outboxes of the address have.
func (a *Account) Buffers() int64 { return a.buffers.Load() }

const (
	// stepNanos is the time of a step. It is half as long again as bounds.StepNanos, because other work on the
	// machine empties the caches. An address may use the state lock for 1/lockShare of each second.
	stepNanos = bounds.StepNanos * 3 / 2
	lockShare = 3

	// The requests of an address wait while it owes more than it may spend in the time Burst. The server learns
	// the cost of events, and of the end of a large session, only afterwards. If an address owes more than it
	// may spend in the time Debt, the server closes its watching connections instead of sending them further
	// events.
	Burst = 100 * time.Millisecond
	Debt  = 5 * time.Second

	// throttlePoll bounds how long a connection waits before it checks again.
	throttlePoll = 20 * time.Millisecond
)

// Shares holds the bounds for each address. Its methods may be called at any time.
type Shares struct {
	Bytes int // how much memory one address may use at this server; set before use

	conns   atomic.Int64 // limit of connections from one address; not positive: no limit
	servers atomic.Int64 // number of servers in the cluster
	counted atomic.Int64 // time of the last count of servers, ns
}

// SetConns sets the limit of connections from one address; not positive: no limit.
func (s *Shares) SetConns(most int) { s.conns.Store(int64(most)) }

// Conns returns the limit that SetConns last set.
func (s *Shares) Conns() int { return int(s.conns.Load()) }

// Bound reports whether the cost of an address has bounds. An operator who allows any number of connections
// from one address trusts it: it may be a benchmark, or a proxy for all clients.
func (s *Shares) Bound() bool { return s.conns.Load() > 0 }

// CountDue reports whether it is time to count the servers of the cluster again. It returns true about once a
// second.
func (s *Shares) CountDue(now time.Duration) bool {
	last := s.counted.Load()
	return s.servers.Load() == 0 || now-time.Duration(last) > time.Second &&
		s.counted.CompareAndSwap(last, int64(now))
}

// SetServers records the number of servers in the cluster.
func (s *Shares) SetServers(n int64) { s.servers.Store(n) }

// Servers returns the number that SetServers last recorded.
func (s *Shares) Servers() int64 { return s.servers.Load() }

// Of returns the steps that an address may spend in time d. Without a bound the address may use the lock all
// the time.
func (s *Shares) Of(d time.Duration) int64 {
	if !s.Bound() {
		return math.MaxInt64 / 2
	}
	return int64(d) / stepNanos / lockShare / max(1, s.servers.Load())
}

// Settle pays the debt of an address with its share of the time since the last call, and returns the steps
// that are still owed.
func (s *Shares) Settle(a *Account, now time.Duration) int64 {
	paid := a.paid.Load()
	passed := now - time.Duration(paid)
	if passed < time.Millisecond || !a.paid.CompareAndSwap(paid, int64(now)) {
		return a.owed.Load()
	}
	return a.owed.Add(-min(a.owed.Load(), s.Of(min(passed, time.Minute))))
}

// Spend charges the steps and returns 0 if the address may spend them. Otherwise it returns how long to wait.
func (s *Shares) Spend(a *Account, steps int64, now time.Duration) (wait time.Duration) {
	for {
		owed := s.Settle(a, now)
		burst := s.Of(Burst)
		if owed >= burst {
			return min(throttlePoll, time.Millisecond+time.Duration(owed-burst)*Burst/time.Duration(burst))
		}
		if a.owed.CompareAndSwap(owed, owed+steps) {
			return 0
		}
	}
}

// Indebted reports whether an address owes so much that it gets no further events.
func (s *Shares) Indebted(a *Account) bool { return a.owed.Load() > s.Of(Debt) }

// Room reports whether an address has room for further bytes in its watches, frames and outboxes; `more` is
// their number. Buffers count twice, because about as much memory again waits for the garbage collector.
func (s *Shares) Room(a *Account, more int) bool {
	return !s.Bound() || 2*(a.buffers.Load()+int64(more))+a.watches.Load() <= 2*int64(s.Bytes)
}
