package budget

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// newShares returns Shares that allow each address `conns` connections and 1000 bytes.
func newShares(conns int) *Shares {
	s := &Shares{Bytes: 1000}
	s.SetConns(conns)
	return s
}

// An address has a third of each second of the state lock. In a cluster of three servers, it has only a third
// of this time at each server. Unused time does not accumulate.
func TestAnAddressHasAThirdOfTheLock(t *testing.T) {
	s := newShares(60)
	for _, servers := range []int64{1, 3} {
		s.SetServers(servers)
		a := new(Account)
		var spent int64
		const seconds = 100
		for now := time.Duration(0); now < seconds*time.Second; now += 5 * time.Millisecond {
			if now < seconds/2*time.Second {
				continue // the address asks for nothing
			}
			for s.Settle(a, now) < s.Of(Burst) {
				a.owed.Add(1000)
				spent += 1000
			}
		}
		held, share := time.Duration(spent)*stepNanos, seconds/2*time.Second/lockShare/time.Duration(servers)
		expect.That(t, held >= share*9/10 && held <= share*11/10,
			"%d servers: the lock was held for %v in %d s", servers, held, seconds/2)
	}
}

// An address that may have any number of connections never waits.
func TestTrustedAddressHasTheWholeLock(t *testing.T) {
	s := newShares(-1)
	s.SetServers(5)
	a := new(Account)
	a.owed.Store(1 << 50)
	if owed := s.Settle(a, time.Millisecond); owed != 0 {
		t.Errorf("the address owes %d steps", owed)
	}
	a.owed.Store(1 << 50)
	if owed := s.Settle(a, time.Millisecond); owed >= s.Of(Burst) {
		t.Errorf("an address that owes %d steps waits", owed)
	}
}

// Settle pays only if a millisecond or more has passed, and for no more than a minute.
func TestAddressIsPaidForTheTimeThatPassed(t *testing.T) {
	s := newShares(60)
	second := s.Of(time.Second)
	for _, x := range []struct {
		passed  time.Duration
		servers int64
		want    int64 // how much of a very large debt is paid
	}{
		{time.Millisecond - 1, 1, 0}, {time.Millisecond, 1, s.Of(time.Millisecond)}, {time.Second, 1, second},
		{time.Second, 0, second}, {time.Second, 2, second / 2}, {time.Minute, 1, s.Of(time.Minute)},
		{time.Hour, 1, s.Of(time.Minute)},
	} {
		s.SetServers(x.servers)
		a := new(Account)
		a.owed.Store(1 << 50)
		const since = 5 * time.Second
		a.paid.Store(int64(since))
		owed := s.Settle(a, since+x.passed)
		expect.Equal(t, owed, a.owed.Load(), "%v, %d servers: owed", x.passed, x.servers)
		expect.Equal(t, owed, 1<<50-x.want, "%v, %d servers: owed", x.passed, x.servers)
		if x.want > 0 {
			expect.Equal(t, s.Settle(a, since+x.passed), owed, "the same time is paid twice")
		}
		a.owed.Store(3)
		a.paid.Store(int64(since))
		s.Settle(a, since+time.Second)
		expect.Equal(t, a.owed.Load(), 0, "more is paid than is owed")
	}
}

// An address may have a limited number of bytes. Of these, the buffers of frames count twice, the watches
// once.
func TestMemoryOfAnAddressUpToItsBound(t *testing.T) {
	s, a := newShares(60), new(Account)
	for _, x := range []struct {
		buffers, watches int64
		more             int
		want             bool
	}{
		{0, 0, 1000, true}, {0, 0, 1001, false}, {500, 1000, 0, true}, {500, 1001, 0, false}, {400, 1000,
			100, true},
		{400, 1000, 101, false}, {0, 2000, 0, true},
	} {
		a.buffers.Store(x.buffers)
		a.watches.Store(x.watches)
		expect.Equal(t, s.Room(a, x.more), x.want, "%d more beside %d of buffers and %d of watches",
			x.more, x.buffers,
			x.watches)
	}
}

// If an address may have any number of connections, its cost is not limited. The operator may change the
// limit of connections while the server runs.
func TestBoundChanges(t *testing.T) {
	s, a := newShares(60), new(Account)
	expect.That(t, !s.Room(a, 1001), "an address has more than its bound")
	s.SetConns(-1)
	expect.That(t, s.Room(a, 1<<40),
		"an address that is trusted has a bound: want s.Room(a, 1<<40)")
	expect.That(t, s.Of(time.Second) > 1<<50,
		"an address that is trusted has a bound: want s.Of(time.Second) > 1<<50")
	s.SetConns(60)
	expect.That(t, !s.Room(a, 1001),
		"an address has no bound again: want !s.Room(a, 1001)")
	expect.That(t, s.Of(time.Second) < 1<<30,
		"an address has no bound again: want s.Of(time.Second) < 1<<30")
}

// An address must wait if it owes more than it may spend in the time Burst. With a larger debt it must wait
// longer.
func TestAddressWaitsBeyondItsBurst(t *testing.T) {
	s, a := newShares(60), new(Account)
	const now = time.Second
	s.Settle(a, now)
	burst := s.Of(Burst)
	a.Charge(burst - 1)
	expect.Equal(t, s.Spend(a, 5, now), 0, "within the burst")
	expect.Equal(t, a.Owed(), burst+4)
	wait := s.Spend(a, 1, now)
	expect.That(t, wait >= time.Millisecond && wait < 2*time.Millisecond, "a little beyond it waits %v", wait)
	a.Charge(s.Of(time.Second))
	expect.Equal(t, s.Spend(a, 1, now), throttlePoll, "far beyond it")
	expect.Equal(t, a.Owed(), burst+4+s.Of(time.Second), "what is not spent is not charged")
	expect.That(t, !s.Indebted(a), "it owes a second")
	a.Charge(s.Of(Debt) - a.Owed())
	expect.That(t, !s.Indebted(a), "it owes what it may")
	a.Charge(1)
	expect.That(t, s.Indebted(a), "it owes more than it may")
	a.Forgive()
	expect.Equal(t, a.Owed(), 0)
}

// CountDue says once a second that the servers of the cluster must be counted. While no count is known, it
// always says so.
func TestServersAreCountedOnceInASecond(t *testing.T) {
	s := newShares(60)
	for range 2 {
		expect.That(t, s.CountDue(0), "no server is known, and they are not counted")
	}
	s.SetServers(3)
	expect.That(t, !s.CountDue(time.Second), "they are counted again within a second")
	expect.That(t, s.CountDue(time.Second+1), "they are not counted again")
	expect.That(t, !s.CountDue(2*time.Second+1), "they are counted again within a second")
	expect.That(t, s.CountDue(2*time.Second+2), "they are not counted again")
	expect.Equal(t, s.Servers(), 3)
}
