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

// The servers of the cluster are counted once a second. They are counted at once if no count is known.
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
