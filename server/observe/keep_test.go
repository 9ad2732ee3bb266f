package observe

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// Logs keep the path, ACL and flags of a request, and no data of a node.
func TestLogsKeepNoData(t *testing.T) {
	data := make([]byte, 100_000)
	create := wire.Create("/a", data, jute.WorldAnyone, jute.FlagEphemeral)
	kept := WithoutData(jute.OpCreate, create)
	expect.That(t, len(kept) < 100, "%d bytes are kept", len(kept))
	d := jute.NewDecoder(kept)
	r := d.CreateRequest(jute.OpCreate)
	must.OK(t, d.Err())
	expect.Equal(t, r.Path, "/a", "the path is")
	expect.Equal(t, r.Flags, jute.FlagEphemeral, "the flags are")
	expect.Equal(t, len(r.ACL), 1, "the entries of the ACL are")

	kept = WithoutData(jute.OpSetData, wire.SetData("/b", data, 7))
	d = jute.NewDecoder(kept)
	s := d.SetDataRequest()
	must.OK(t, d.Err())
	expect.Equal(t, s.Path, "/b", "the path is")
	expect.Equal(t, s.Version, int32(7), "the version is")

	whole := wire.SetData("/b", nil, 7)
	for n := range len(whole) { // a body that ends early is kept unchanged, and refused as before
		_ = WithoutData(jute.OpSetData, whole[:n])
	}
	for _, at := range []int{0, 6} { // a length of the path or of the data that is impossible stays so
		broken := bytes.Clone(whole)
		binary.BigEndian.PutUint32(broken[at:], 0xff61ffff)
		d = jute.NewDecoder(WithoutData(jute.OpSetData, broken))
		d.SetDataRequest()
		expect.Is(t, d.Err(), jute.ErrLength)
	}
	path := wire.PathVersion("/c", -1)
	expect.Equal(t, string(WithoutData(jute.OpDelete, path)), string(path), "a delete is kept")
}
