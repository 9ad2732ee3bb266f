package client

import "testing"

// A client that lives for years locks and unlocks all the time: what it knows of
// its holds must not grow.
func TestHoldsAreForgottenWithTheirEnd(t *testing.T) {
	c, d := dial(t), dir(t)
	holds := func() int {
		c.mu.Lock()
		e := c.ep
		c.mu.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.holds)
	}
	l := lock(t, c.Mutex(d).Lock)
	if n := holds(); n != 1 {
		t.Errorf("%d holds of one lock", n)
	}
	unlock(t, l)
	eventually(t, "the hold to be forgotten", func() bool { return holds() == 0 })
}
