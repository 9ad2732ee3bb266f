package clients

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestClientCreatesReadsChangesAndDeletes(t *testing.T) {
	r := newRig(t, Options{})
	c := r.client()
	create(t, c, "/a", "one", 0)
	f := call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
	d := jute.NewDecoder(f.Body)
	must.Equal(t, string(d.Buffer()), "one", "data")
	must.OK(t, c.SendXid(7, jute.OpSetData, wire.SetData("/a", []byte("two"), -1)))
	wantKinds(t, c, "NodeDataChanged /a", 7)
	call(t, c, jute.OK, jute.OpPing, nil)
	call(t, c, jute.OK, jute.OpDelete, wire.PathVersion("/a", -1))
	call(t, c, jute.NoNode, jute.OpGetData, wire.PathWatch("/a", false))
	call(t, c, jute.OK, jute.OpCloseSession, nil)
	must.OK(t, c.Closed())
}
