package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A long list is put together while the state is not locked. Changes go on beside it:
// the client hears of those behind the list that it watches, never before, and the list
// is of one moment.
func TestLongListsAreOfOneMoment(t *testing.T) {
	r := newRig(t, Options{})
	c, other := r.client(), r.client()
	create(t, other, "/dir", "", 0)
	const many = 5000
	name := strings.Repeat("n", 1000)
	for at := 0; at < many; at += 500 {
		var ops []wire.Op
		for i := at; i < at+500; i++ {
			path := fmt.Sprintf("/dir/%s%05d", name, i)
			ops = append(ops, wire.Op{Type: jute.OpCreate, Body: wire.Create(path, nil, jute.WorldAnyone,
				jute.FlagEphemeral)})
		}
		call(t, other, jute.OK, jute.OpMulti, wire.Multi(ops...))
	}
	for _, op := range []jute.OpCode{jute.OpGetChildren, jute.OpGetChildren2} {
		for k := range 5 {
			must.OK(t, c.WriteRaw(wire.AppendRequest(nil, int32(k+1), op, wire.PathWatch("/dir", true))))
			create(t, other, "/dir/x", "", 0)
			call(t, other, jute.OK, jute.OpDelete, wire.PathVersion("/dir/x", -1))
			f, err := c.Reply()
			must.OK(t, err)
			d := jute.NewDecoder(f.Body)
			if n := d.Int(); f.Code != jute.OK || f.Xid != int32(k+1) || n != many && n != many+1 {
				t.Fatalf("%v: reply %d %v of %d names", op, f.Xid, f.Code, n)
			}
			for range many {
				if got, _ := d.String(); !strings.HasPrefix(got, name) && got != "x" {
					t.Fatalf("%v: %q", op, got)
				}
			}
			must.OK(t, d.Err())
		}
	}
	must.OK(t, other.WriteRaw(wire.AppendRequest(nil, 99, jute.OpGetEphemerals, wire.Path("/dir"))))
	f, err := other.Reply()
	must.OK(t, err)
	d := jute.NewDecoder(f.Body)
	if n := d.Int(); n != many || f.Xid != 99 {
		t.Errorf("%d ephemeral nodes of %d, reply %d", n, many, f.Xid)
	}
}
