package tree_test

import (
	"fmt"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// The queue of a lock: two sessions create sequential ephemeral nodes, and the first session ends.
func Example() {
	t := tree.New()
	zxid := int64(0)
	create := func(session int64, op jute.OpCode, path string, flags int32) {
		zxid++
		c := &tree.Change{Zxid: zxid, Time: 1700000000000, Session: session}
		body := jute.AppendString(nil, path)
		body = jute.AppendBuffer(body, nil)
		body = jute.AppendACL(body, jute.WorldAnyone)
		reply, code, _ := t.Apply(c, op, jute.AppendInt(body, flags), nil)
		d := jute.NewDecoder(reply)
		made, _ := d.String()
		fmt.Println(made, code)
	}
	create(7, jute.OpCreateContainer, "/lock", jute.FlagContainer)
	create(7, jute.OpCreate, "/lock/n-", jute.FlagEphemeralSequential)
	create(8, jute.OpCreate, "/lock/n-", jute.FlagEphemeralSequential)

	c := &tree.Change{Zxid: zxid + 1}
	t.CloseSession(c, 7)
	for _, e := range c.Events {
		fmt.Println(e.Type, e.Path)
	}
	fmt.Println(t.Children("/lock"))
	// Output:
	// /lock ok (0)
	// /lock/n-0000000000 ok (0)
	// /lock/n-0000000001 ok (0)
	// NodeDeleted /lock/n-0000000000
	// NodeChildrenChanged /lock
	// [n-0000000001]
}
