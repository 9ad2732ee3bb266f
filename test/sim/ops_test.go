package sim

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
)

// key() returns a random key. Clients that rest rarely use the last key, so that its watches wait for long.
func (c *Client) key() string {
	n := c.draw.IntN(keys)
	if c.Rest != nil && n == keys-1 && c.draw.IntN(40) > 0 {
		n = 0
	}
	if c.draw.IntN(6) == 0 {
		return fmt.Sprintf("%s/k%d", guarded, n%3)
	}
	return fmt.Sprintf("%s/k%d", Root, n)
}

// guarded is an existing node below Root. Clients change its ACL, and so who may create and delete its
// children.
const guarded = Root + "/d"

// parent() returns a node that has children.
func (c *Client) parent() string {
	if c.draw.IntN(6) == 0 {
		return guarded
	}
	return Root
}

// users is the number of users that ACLs name. Each client is one of them.
const users = 6

// acl returns a random ACL, which is mostly open. Otherwise one of the users may do everything.
func (c *Client) acl() []jute.ACL {
	k := c.draw.IntN(12)
	all := jute.ACL{Perms: jute.PermAll, ID: userID(credentialsOf(c.draw.IntN(users)))}
	switch k {
	case 0:
		return []jute.ACL{all}
	case 1, 2:
		return []jute.ACL{{Perms: c.draw.Int32N(jute.PermAll), ID: jute.WorldAnyone[0].ID}, all}
	}
	return nil
}

// setACL returns a random request to change an ACL.
func (c *Client) setACL() history.Step {
	path := guarded
	if c.draw.IntN(3) > 0 {
		path = c.key()
	}
	return history.Step{Op: jute.OpSetACL, Path: path, Version: c.version(), ACL: c.acl()}
}

// credentialsOf() returns the user and the password of client k.
func credentialsOf(k int) string { return fmt.Sprintf("u%d:p%d", k, k) }

// userID returns the identity that credentials prove.
func userID(credentials string) jute.ID {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials))
	return jute.ID{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
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
		op.Step = history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data(), ACL: c.acl()}
	case k < 18:
		op.Step = history.Step{Op: jute.OpCreate2, Path: c.key(), Data: c.data(), Flags: jute.FlagEphemeral,
			ACL: c.acl()}
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
	case k < 54:
		op.Step = c.setACL()
	case k < 55:
		op.Step = history.Step{Op: jute.OpGetACL, Path: c.key()}
	case k < 66:
		op.Step = history.Step{Op: jute.OpGetData, Path: c.key()}
		op.Watch = c.draw.IntN(2) == 0
	case k < 76:
		op.Step = history.Step{Op: jute.OpExists, Path: c.key()}
		op.Watch = c.draw.IntN(2) == 0
	case k < 84:
		op.Step = history.Step{Op: jute.OpGetChildren2, Path: c.parent()}
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
	if c.draw.IntN(30) == 0 {
		return c.setACL()
	}
	switch c.draw.IntN(4) {
	case 0:
		return history.Step{Op: jute.OpCreate, Path: c.key(), Data: c.data(), ACL: c.acl()}
	case 1:
		return history.Step{Op: jute.OpDelete, Path: c.key(), Version: c.version()}
	case 2:
		return history.Step{Op: jute.OpCheck, Path: c.key(), Version: c.version()}
	}
	return history.Step{Op: jute.OpSetData, Path: c.key(), Data: c.data(), Version: c.version()}
}
