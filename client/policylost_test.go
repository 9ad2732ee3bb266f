package client

import "testing"

// TestEveryLostMessageOfAPolicyLock loses each message of a cycle in turn, for a
// write, for a read that is upgraded, and for a write that is downgraded.
func TestEveryLostMessageOfAPolicyLock(t *testing.T) {
	addr(t)
	leakCheck(t)
	for name, make := range policyRecipes {
		for way, rule := range losses {
			// The other ways differ in where the message is lost, not in what is known.
			if !envSet("ZLOCKD_CLIENT_FULL") && way != "cut after request" && way != "cut before request" {
				continue
			}
			t.Run(name+","+way, func(t *testing.T) {
				t.Parallel()
				for k := 1; lostMessage(t, make, rule, true, k) && !t.Failed(); k++ {
				}
			})
		}
	}
}
