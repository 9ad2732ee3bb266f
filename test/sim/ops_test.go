package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
)

// key() returns a random key. Clients that rest rarely use the last key, so that its watches wait for long.
func (c *Client) key() string {
	n := c.draw.IntN(keys)
	if c.Rest != nil && n == keys-1 && c.draw.IntN(40) > 0 {
		n = 0
	}
	return fmt.Sprintf("%s/k%d", Root, n)
}

func (c *Client) data() []byte {
	b := fmt.Appendf(nil, "%s-%d", c.Name, c.draw.IntN(1_000_000))
	if c.Bulk != nil && c.Bulk.IntN(20) == 0 {
		b = append(b, make([]byte, c.Bulk.IntN(200<<10))...)
	}
	return b
}

// version() returns -1 (any version) most of the time, otherwise a version that may be right.
func (c *Client) version() int32 {
	if c.draw.IntN(3) > 0 {
		return -1
	}
	return int32(c.draw.IntN(4))
}

// next() returns the next random request. It returns nil if the run leaves this request out. A request
// depends only on its number, so that leaving out one request changes no other request.
func (c *Client) next() *history.Op {
	number := c.drawn
	c.drawn++
	if c.Only != nil && !c.Only(number) {
		return nil
	}
	c.draw = rand.New(rand.NewPCG(c.Seed, uint64(number)))
	return c.random()
}

// random() returns a random request. Some pings follow requests that have no answer yet. A ping's reply and
// those answers must not show states in the wrong order.
func (c *Client) random() *history.Op {
	op := new(history.Op)
	if c.draw.IntN(7) == 0 {
		op.Op = jute.OpPing
		return op
	}
	switch k := c.draw.IntN(100); {
	case k < 12:
		op.Step = history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data()}
	case k < 18:
		op.Step = history.Step{Op: jute.OpCreate2, Path: c.key(), Data: c.data(), Flags: jute.FlagEphemeral}
	case k < 24 && len(c.queue) > 3:
		op.Step = history.Step{Op: jute.OpDelete, Path: c.queue[0], Version: -1}
		c.queue = c.queue[1:]
	case k < 24:
		op.Step = history.Step{Op: jute.OpCreate, Path: Root + "/q-", Data: c.data(),
			Flags: jute.FlagEphemeralSequential}
	case k < 36:
		op.Step = history.Step{Op: jute.OpDelete, Path: c.key(), Version: c.version()}
	case k < 52:
		op.Step = history.Step{Op: jute.OpSetData, Path: c.key(), Data: c.data(), Version: c.version()}
	case k < 66:
		op.Step = history.Step{Op: jute.OpGetData, Path: c.key()}
		op.Watch = c.draw.IntN(2) == 0
	case k < 76:
		op.Step = history.Step{Op: jute.OpExists, Path: c.key()}
		op.Watch = c.draw.IntN(2) == 0
	case k < 84:
		op.Step = history.Step{Op: jute.OpGetChildren2, Path: Root}
		op.Watch = c.draw.IntN(2) == 0
	case k < 87:
		op.Step = history.Step{Op: jute.OpSync, Path: Root}
	case k < 88 && c.watches.Lasting() < 3:
		op.Step = history.Step{Op: jute.OpAddWatch, Path: c.key()}
		op.Mode = int32(c.draw.IntN(2))
	case k < 99:
		op.Op = jute.OpMulti
		for range 1 + c.draw.IntN(3) {
			op.Steps = append(op.Steps, c.step())
		}
	case c.Rest != nil && c.draw.IntN(20) > 0:
		op.Op = jute.OpPing
	default:
		op.Op = jute.OpCloseSession
	}
	return op
}

// step() returns a random operation of a multi.
func (c *Client) step() history.Step {
	switch c.draw.IntN(4) {
	case 0:
		return history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data()}
	case 1:
		return history.Step{Op: jute.OpDelete, Path: c.key(), Version: c.version()}
	case 2:
		return history.Step{Op: jute.OpCheck, Path: c.key(), Version: c.version()}
	}
	return history.Step{Op: jute.OpSetData, Path: c.key(), Data: c.data(), Version: c.version()}
}
