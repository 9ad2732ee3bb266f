package observe

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
	for n := range len(whole) { // no panic, wherever the body ends
		_ = WithoutData(jute.OpSetData, whole[:n])
	}
	// The length of the path or of the data is impossible, and is still so in the copy.
	for _, at := range []int{0, 6} {
		broken := bytes.Clone(whole)
		binary.BigEndian.PutUint32(broken[at:], 0xff61ffff)
		d = jute.NewDecoder(WithoutData(jute.OpSetData, broken))
		d.SetDataRequest()
		expect.Is(t, d.Err(), jute.ErrLength)
	}
	path := wire.PathVersion("/c", -1)
	expect.Equal(t, string(WithoutData(jute.OpDelete, path)), string(path), "a delete is kept")
}

// Logs keep no data of a multi. Wherever a multi is damaged, reading the kept copy gives the same operations
// and the same error as reading the whole multi.
func TestLogsKeepNoDataOfMultis(t *testing.T) {
	data := make([]byte, 100_000)
	read := func(body []byte) (text string) {
		d := jute.NewDecoder(body)
		for h := d.MultiHeader(); !h.Done && d.Err() == nil; h = d.MultiHeader() {
			switch h.Type {
			case jute.OpCreate, jute.OpCreateTTL:
				r := d.CreateRequest(h.Type)
				text += fmt.Sprintln(h.Type, r.Path, r.NoPath, r.ACL, r.Flags, r.TTL)
			case jute.OpSetData:
				r := d.SetDataRequest()
				text += fmt.Sprintln(h.Type, r.Path, r.NoPath, r.Version)
			default:
				r := d.PathVersion()
				text += fmt.Sprintln(h.Type, r.Path, r.NoPath, r.Version)
			}
		}
		return text + fmt.Sprint(d.Err())
	}
	multi := func(data []byte) []byte {
		return wire.Multi(
			wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/a", 3)},
			wire.Op{Type: jute.OpCreate, Body: wire.Create("/b", data, jute.WorldAnyone, 1)},
			wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/c", -1)},
			wire.Op{Type: jute.OpSetData, Body: wire.SetData("/d", data, 7)},
			wire.Op{Type: jute.OpCreateTTL, Body: wire.CreateTTL("/e", data, jute.WorldAnyone, 5, 9)})
	}
	kept := WithoutData(jute.OpMulti, multi(data))
	expect.That(t, len(kept) < 400, "%d bytes are kept", len(kept))
	expect.Equal(t, read(kept), read(multi(data)))
	whole := multi([]byte("data"))
	for n := range len(whole) {
		expect.Equal(t, read(WithoutData(jute.OpMulti, whole[:n])), read(whole[:n]), "the first %d bytes", n)
		broken := bytes.Clone(whole)
		broken[n] ^= 0xff
		expect.Equal(t, read(WithoutData(jute.OpMulti, broken)), read(broken), "byte %d is another", n)
	}
	expect.Equal(t, string(WithoutData(jute.OpMulti, nil)), "", "an empty multi")
}
