package clients

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/wire"
)

// Many clients come, use the same nodes, watch each other's nodes and leave in every possible way. Each
// client gets its replies in order. At the end nothing of them is left.
func TestManyClientsComeAndGo(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: -1, MaxPending: 20})
	create(t, r.client(), "/d", "", 0)
	stop := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range 24 {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		wg.Go(func() {
			var last *wire.Session
			for time.Now().Before(stop) {
				if s := visit(t, r, rng, last); rng.IntN(3) == 0 {
					last = s
				} else {
					last = nil
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "nothing left", func() bool {
		s := r.status()
		return s.Conns == 1 && s.AllWatches == 0 && s.Outstanding == 0
	})
}

// visit uses one connection. It returns the session if the session may still live.
func visit(t *testing.T, r *rig, rng *rand.Rand, again *wire.Session) *wire.Session {
	c, err := wire.Dial(r.ln.Addr().String())
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	hello := wire.NewSession(30000)
	if again != nil {
		hello = wire.Attach(*again, 0)
	}
	if err := c.Connect(hello); err != nil {
		t.Error("connect:", err)
		return nil
	}
	for range rng.IntN(5) {
		var p batch
		n := 1 + rng.IntN(60)
		for range n {
			path := fmt.Sprintf("/d/%d", rng.IntN(10))
			switch rng.IntN(9) {
			case 0:
				p.add(jute.OpCreate, wire.Create(path, []byte(path), jute.WorldAnyone, int32(rng.IntN(2))))
			case 1:
				p.add(jute.OpDelete, wire.PathVersion(path, -1))
			case 2:
				p.add(jute.OpSetData, wire.SetData(path, []byte(path), -1))
			case 3:
				p.add(jute.OpGetChildren, wire.PathWatch("/d", true))
			case 4:
				p.add(jute.OpAddWatch, wire.PathInt(path, int32(rng.IntN(2))))
			case 5:
				p.add(jute.OpRemoveWatches, wire.PathInt(path, 3))
			case 6:
				p.add(jute.OpSetWatches2, wire.SetWatches2(0, []string{path}, []string{path}, []string{"/d"}, nil, nil))
			default:
				p.add(jute.OpExists, wire.PathWatch(path, true))
			}
		}
		expect.OK(t, c.WriteRaw(p.b))
		if rng.IntN(8) == 0 {
			return &c.Session // leave without waiting for any reply
		}
		for xid := int32(1); xid <= int32(n); xid++ {
			f, err := c.Reply()
			if !expect.OK(t, err, "reply to request %d", xid) || !expect.Equal(t, f.Xid, xid, "xid of a reply") {
				return nil
			}
		}
	}
	if rng.IntN(2) == 0 {
		expect.OK(t, expect.Err(c.Call(jute.OpCloseSession, nil)), "close")
		return nil
	}
	return &c.Session
}
