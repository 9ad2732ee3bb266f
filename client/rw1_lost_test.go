package client

import (
	"context"
	"testing"

	"github.com/zlockd/zlockd/test/faultproxy"
)

// TestEveryLostMessageOfAPolicyLock loses each message of a cycle in turn, for a
// write, for a read that is upgraded, and for a write that is downgraded.
func TestEveryLostMessageOfAPolicyLock(t *testing.T) {
	addr(t)
	leakCheck(t)
	type take = func(context.Context, ...AcquireOption) (*Lease, error)
	lockOf := func(c *Client, d string) *RWMutex { return c.RWMutex(d, WithPolicy(PolicyFair)) }
	recipes := map[string]func(c *Client, d string) (take, []string){
		"write": func(c *Client, d string) (take, []string) { return lockOf(c, d).Lock, []string{""} },
		"upgrade": func(c *Client, d string) (take, []string) {
			return func(ctx context.Context, o ...AcquireOption) (*Lease, error) {
				l, err := lockOf(c, d).RLock(ctx, o...)
				if err != nil {
					return nil, err
				}
				return l, l.Upgrade(ctx)
			}, []string{""}
		},
		"downgrade": func(c *Client, d string) (take, []string) {
			return func(ctx context.Context, o ...AcquireOption) (*Lease, error) {
				l, err := lockOf(c, d).Lock(ctx, o...)
				if err != nil {
					return nil, err
				}
				return l, l.Downgrade(ctx)
			}, []string{""}
		},
	}
	ways := map[string]faultproxy.Rule{
		"reply dropped":      {Kind: faultproxy.Reply, Do: faultproxy.Drop},
		"request dropped":    {Kind: faultproxy.Request, Do: faultproxy.Drop},
		"cut before request": {Kind: faultproxy.Request, Do: faultproxy.CutBefore},
		"cut after request":  {Kind: faultproxy.Request, Do: faultproxy.CutAfter},
		"cut before reply":   {Kind: faultproxy.Reply, Do: faultproxy.CutBefore},
		"cut after reply":    {Kind: faultproxy.Reply, Do: faultproxy.CutAfter},
	}
	for recipe, make := range recipes {
		for way, rule := range ways {
			// The other ways differ in where the message is lost, not in what is known.
			if !envSet("ZLOCKD_CLIENT_FULL") && way != "cut after request" && way != "cut before request" {
				continue
			}
			t.Run(recipe+","+way, func(t *testing.T) {
				t.Parallel()
				for k := 1; lostMessage(t, make, rule, true, k) && !t.Failed(); k++ {
				}
			})
		}
	}
}
