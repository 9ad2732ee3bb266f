package conn

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/entrance"
)

// afford waits until the address may spend `steps` steps, and charges them. It returns false when the
// connection has ended.
func (c *Conn) afford(steps int64) bool {
	shares := &c.shared.Shares
	if !shares.Bound() {
		return true
	}
	now := c.reader.arrived // accurate enough, and reading the clock costs as much as answering a read
	for waited := false; ; {
		wait := shares.Spend(&c.from.Account, steps, now)
		if wait == 0 {
			return true
		}
		if now = c.shared.Now(); !waited {
			waited = true
			c.shared.Metrics.Throttled.Add(1)
			c.out.Flush()
			continue
		}
		if !c.out.IsOpen() || c.shared.ctx.Err() != nil {
			return false
		}
		time.Sleep(wait)
		c.alive(c.shared.Now()) // the client is not silent: this server delays its next bytes
	}
}

// charge() adds steps to the amount that afford() has charged; negative steps reduce the amount. The next
// request waits until the account has paid.
func (c *Conn) charge(steps int64) { c.from.Account.Charge(steps) }

// foresee() charges the estimated cost of a read, as afford() does. The exact cost replaces the estimate when
// the read is answered.
func (c *Conn) foresee(steps int64) bool {
	c.reads.cost -= steps
	return c.afford(steps)
}

// countServers counts, about once a second, the servers of the cluster. The servers divide among them the
// time for which an address may use the state lock.
func (s *Shared) countServers(r entrance.Replica) {
	if s.Shares.CountDue(s.Now()) {
		r.View(func(st *state.State) {
			n := int64(0)
			for _, m := range st.Members() {
				if m.Incarnation != "" {
					n++
				}
			}
			s.Shares.SetServers(n)
		})
	}
}
