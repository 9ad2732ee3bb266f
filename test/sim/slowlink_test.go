package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// A follower that was away while much was written catches up over a link of 20
// Mbit/s, in little more time than the bytes take, and costs nobody the office.
func TestR11FollowerCatchesUpOverASlowLink(t *testing.T) {
	if testing.Short() {
		t.Skip("300 MB of writes")
	}
	const size, entries, rate = 1_000_000, 100, 20_000_000 / 8
	quiet(t, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		term := c.server(leader).Node().Status().Term
		behind := others[0]
		c.crash(behind)
		w := c.client("c0", leader, 40*time.Second)
		w.Timeout = time.Minute
		must.Get(w.Create("/n", nil, 0))(t)
		for k := range entries {
			must.Get(w.SetData("/n", fmt.Appendf(make([]byte, 0, size), "%0*d", size, k), -1))(t)
		}
		c.net.Throttle(rate)
		c.start(behind)
		began := time.Now()
		for c.server(behind).Node().Zxid() < c.server(leader).Node().Zxid() {
			if time.Since(began) > 3*size*entries/rate*time.Second {
				t.Fatalf("server %d is at zxid %d of %d after %v", behind, c.server(behind).Node().Zxid(),
					c.server(leader).Node().Zxid(), time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%d entries of %d bytes caught up in %v, the bytes alone take %v", entries, size,
			time.Since(began).Round(time.Millisecond), size*entries/rate*time.Second)
		if st := c.server(leader).Node().Status(); st.Role != "leader" || st.Term != term {
			t.Errorf("the leader of term %d is %q in term %d", term, st.Role, st.Term)
		}
		c.net.Throttle(0)
	})
}
