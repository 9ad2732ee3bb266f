package clients

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// alive() fails the test unless the server still answers c in order.
func alive(t *testing.T, c *wire.Conn) {
	t.Helper()
	call(t, c, jute.OK, jute.OpPing, nil)
}

func TestEveryOperationNumberIsAnsweredAsItMust(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: -1})
	ops := []jute.OpCode{math.MinInt32, math.MaxInt32, 65535, 1 << 16, -1000}
	for op := jute.OpCode(-64); op < 192; op++ {
		ops = append(ops, op)
	}
	var c *wire.Conn
	for _, op := range ops {
		if c == nil {
			c = r.client()
		}
		must.OK(t, c.SendXid(5, op, wire.Body{}))
		if request.Of(op) == request.Close {
			wantKinds(t, c, 5)
			must.OK(t, c.Closed())
			c = nil
			continue
		}
		if op == jute.OpAuth || op == jute.OpSASL { // the server does not answer a packet that is cut short
			must.OK(t, c.Closed())
			c = nil
			continue
		}
		f, err := c.Next()
		must.OK(t, err, "op %d", op)
		switch kind := request.Of(op); {
		case kind == request.Unknown:
			expect.Equal(t, f.Code, jute.Unimplemented, "op %d: f.Code", op)
			expect.Equal(t, f.Zxid, -1, "op %d: f.Zxid", op)
			expect.Equal(t, f.Xid, 5, "op %d: f.Xid", op)
			expect.That(t, len(f.Body) <= 0, "op %d: %+v: want len(f.Body) <= 0", op, f)
			must.OK(t, c.Closed())
			c = nil
		case op == jute.OpPing:
			expect.Equal(t, f.Xid, -2, "ping: f.Xid")
			expect.Equal(t, f.Code, jute.OK, "ping: f.Code")
		case op == jute.OpWhoAmI:
			expect.Equal(t, f.Code, jute.OK, "op %v: %+v", op, f)
		case kind == request.Refused:
		default:
			expect.Equal(t, f.Code, jute.MarshallingError, "op %v without a body: f.Code", op)
			expect.That(t, len(f.Body) <= 0,
				"op %v without a body: %+v: want len(f.Body) <= 0", op, f)
		}
	}
}

func TestServersOwnOperationsAreUnknownToClients(t *testing.T) {
	r := newRig(t, options.Options{})
	for op := jute.OpCode(-18); op <= -10; op++ {
		if op == jute.OpCloseSession {
			continue
		}
		c := r.client()
		f := call(t, c, jute.Unimplemented, op, wire.Body(make([]byte, 64)))
		expect.Equal(t, f.Zxid, -1, "op %d: zxid", op)
		must.OK(t, c.Closed())
	}
}

func TestMalformedRequests(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "", 0)
	acl := jute.WorldAnyone
	short := func(b wire.Body, n int) wire.Body { return b[:len(b)-n] }
	badLength := func(n int32) wire.Body { return append(wire.Body{}.Int(n), 'x') }
	for _, tt := range []struct {
		name string
		op   jute.OpCode
		body wire.Body
		want jute.ErrCode
	}{
		{"getData without watch byte", jute.OpGetData, wire.Path("/a"), jute.MarshallingError},
		{"getData of null", jute.OpGetData, wire.Body{}.Null().Bool(false), jute.MarshallingError},
		{"exists of null", jute.OpExists, wire.Body{}.Null().Bool(false), jute.MarshallingError},
		{"getChildren of null", jute.OpGetChildren, wire.Body{}.Null().Bool(false), jute.MarshallingError},
		{"getChildren2 of null", jute.OpGetChildren2, wire.Body{}.Null().Bool(false), jute.MarshallingError},
		{"getACL of null", jute.OpGetACL, wire.Body{}.Null(), jute.MarshallingError},
		{"count of null", jute.OpGetAllChildrenNumber, wire.Body{}.Null(), jute.MarshallingError},
		{"ephemerals of null", jute.OpGetEphemerals, wire.Body{}.Null(), jute.OK},
		{"ephemerals cut short", jute.OpGetEphemerals, wire.Body{0, 0}, jute.MarshallingError},
		{"sync of null", jute.OpSync, wire.Body{}.Null(), jute.OK},
		{"length -2", jute.OpGetData, badLength(-2), jute.MarshallingError},
		{"length minimum", jute.OpGetData, badLength(math.MinInt32), jute.MarshallingError},
		{"length maximum", jute.OpGetData, badLength(math.MaxInt32), jute.MarshallingError},
		{"length beyond the frame", jute.OpGetData, badLength(100), jute.MarshallingError},
		{"delete cut short", jute.OpDelete, short(wire.PathVersion("/a", 0), 1), jute.MarshallingError},
		{"create cut short", jute.OpCreate, short(wire.Create("/b", nil, acl, 0), 1), jute.MarshallingError},
		{"create with a million ACLs claimed", jute.OpCreate, wire.Body{}.Str("/b").Null().Int(1 << 20),
			jute.MarshallingError},
		{"setData cut short", jute.OpSetData, short(wire.SetData("/a", nil, 0), 2), jute.MarshallingError},
		{"setACL cut short", jute.OpSetACL, wire.Path("/a"), jute.MarshallingError},
		{"multi without end", jute.OpMulti, short(wire.Multi(), 9), jute.MarshallingError},
		{"multiRead without end", jute.OpMultiRead, short(wire.Multi(), 9), jute.MarshallingError},
		{"multi in a multi", jute.OpMulti, wire.Multi(wire.Op{Type: jute.OpMulti, Body: wire.Multi()}),
			jute.MarshallingError},
		{"write in a multiRead", jute.OpMultiRead,
			wire.Multi(wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/a", -1)}), jute.MarshallingError},
		{"addWatch of null", jute.OpAddWatch, wire.Body{}.Null().Int(0), jute.MarshallingError},
		{"addWatch mode 2", jute.OpAddWatch, wire.PathInt("/a", 2), jute.MarshallingError},
		{"addWatch mode -1", jute.OpAddWatch, wire.PathInt("/a", -1), jute.MarshallingError},
		{"addWatch of a relative path", jute.OpAddWatch, wire.PathInt("a", 0), jute.BadArguments},
		{"addWatch of nothing", jute.OpAddWatch, wire.PathInt("", 1), jute.BadArguments},
		{"removeWatches of null", jute.OpRemoveWatches, wire.Body{}.Null().Int(3), jute.MarshallingError},
		{"removeWatches type 0", jute.OpRemoveWatches, wire.PathInt("/a", 0), jute.MarshallingError},
		{"removeWatches type 6", jute.OpRemoveWatches, wire.PathInt("/a", 6), jute.MarshallingError},
		{"removeWatches without any", jute.OpRemoveWatches, wire.PathInt("/a", 3), jute.NoWatcher},
		{"checkWatches without any", jute.OpCheckWatches, wire.PathInt("/a", 5), jute.NoWatcher},
		{"checkWatches cut short", jute.OpCheckWatches, wire.Path("/a"), jute.MarshallingError},
		{"setWatches with null list", jute.OpSetWatches, wire.Body{}.Long(0).Null().Strs().Strs(),
			jute.MarshallingError},
		{"setWatches of null", jute.OpSetWatches, wire.Body{}.Long(0).Strs().Int(1).Null().Strs(),
			jute.MarshallingError},
		{"setWatches2 of null", jute.OpSetWatches2, wire.Body{}.Long(0).Strs().Strs().Strs().Int(2).Str(
			"/a").Null().Strs(), jute.MarshallingError},
		{"setWatches cut short", jute.OpSetWatches, wire.Body{}.Long(0).Strs(), jute.MarshallingError},
		{"setWatches with a count too large", jute.OpSetWatches, wire.Body{}.Long(0).Int(math.MaxInt32),
			jute.MarshallingError},
		{"setWatches with a negative count", jute.OpSetWatches, wire.Body{}.Long(0).Int(-7).Strs().Strs(), jute.OK},
		{"setWatches2 as setWatches", jute.OpSetWatches2, wire.SetWatches(0, nil, nil, nil), jute.MarshallingError},
		{"check outside a multi", jute.OpCheck, wire.PathVersion("/a", -1), jute.Unimplemented},
		{"deleteContainer", jute.OpDeleteContainer, wire.Path("/a"), jute.BadArguments},
		{"reconfig", jute.OpReconfig, wire.Body{}.Null().Null().Null().Long(-1), jute.ReconfigDisabled},
		{"reconfig cut short", jute.OpReconfig, wire.Body{}.Null().Null().Null(), jute.MarshallingError},
		{"empty path read", jute.OpGetData, wire.PathWatch("a", false), jute.NoNode},
		{"path // read", jute.OpGetData, wire.PathWatch("//", false), jute.NoNode},
		{"path /a/ read", jute.OpGetData, wire.PathWatch("/a/", false), jute.NoNode},
		{"path with NUL exists", jute.OpExists, wire.PathWatch("/a\x00", false), jute.BadArguments},
		{"path empty create", jute.OpCreate, wire.Create("", nil, acl, 0), jute.BadArguments},
		{"path / create", jute.OpCreate, wire.Create("/", nil, acl, 0), jute.NodeExists},
		{"path // create", jute.OpCreate, wire.Create("//", nil, acl, 0), jute.BadArguments},
		{"path /a/ create", jute.OpCreate, wire.Create("/a/", nil, acl, 0), jute.BadArguments},
		{"path /a/. create", jute.OpCreate, wire.Create("/a/.", nil, acl, 0), jute.BadArguments},
		{"path U+0000 create", jute.OpCreate, wire.Create("/\x00", nil, acl, 0), jute.BadArguments},
		{"path U+FFFF create", jute.OpCreate, wire.Create("/\uffff", nil, acl, 0), jute.BadArguments},
		{"path invalid UTF-8 create", jute.OpCreate, wire.Create("/\xff", nil, acl, 0), jute.BadArguments},
		{"path too long create", jute.OpCreate, wire.Create("/"+strings.Repeat("x", 70000), nil, acl, 0),
			jute.BadArguments},
		{"path too deep create", jute.OpCreate, wire.Create(strings.Repeat("/x", 2000), nil, acl, 0), jute.NoNode},
		{"flags 7", jute.OpCreate, wire.Create("/b", nil, acl, 7), jute.BadArguments},
		{"flags -1", jute.OpCreate, wire.Create("/b", nil, acl, -1), jute.BadArguments},
		{"version -2", jute.OpDelete, wire.PathVersion("/a", -2), jute.BadVersion},
		{"version minimum", jute.OpSetData, wire.SetData("/a", nil, math.MinInt32), jute.BadVersion},
		{"version maximum", jute.OpSetACL, wire.SetACL("/a", acl, math.MaxInt32), jute.BadVersion},
		{"TTL 0", jute.OpCreateTTL, wire.CreateTTL("/b", nil, acl, jute.FlagPersistentTTL, 0), jute.BadArguments},
		{"TTL above maximum", jute.OpCreateTTL, wire.CreateTTL("/b", nil, acl, jute.FlagPersistentTTL,
			jute.MaxTTL+1), jute.BadArguments},
		{"TTL -1 without TTL flag", jute.OpCreateTTL, wire.CreateTTL("/b", nil, acl, 0, -1), jute.BadArguments},
		{"ACL null", jute.OpCreate, wire.Create("/b", nil, nil, 0), jute.InvalidACL},
		{"ACL empty", jute.OpCreate, wire.Create("/b", nil, []jute.ACL{}, 0), jute.InvalidACL},
		{"ACL of unknown scheme", jute.OpCreate, wire.Create("/b", nil, []jute.ACL{
			{Perms: 31, ID: jute.ID{Scheme: "x", ID: "y"}}}, 0), jute.InvalidACL},
		{"ACL with perms 0", jute.OpCreate, wire.Create("/perms0", nil, []jute.ACL{{Perms: 0, ID: acl[0].ID}}, 0),
			jute.OK},
		{"ACL with all bits", jute.OpCreate, wire.Create("/perms-1", nil, []jute.ACL{{Perms: -1, ID: acl[0].ID}},
			0), jute.OK},
		{"trailing bytes", jute.OpGetData, append(wire.PathWatch("/a", false), "and more"...), jute.OK},
		{"ping with a body", jute.OpPing, wire.Body("body"), jute.OK},
		{"sasl", jute.OpSASL, wire.Body{}.Buf([]byte("token")), jute.OK},
	} {
		f, err := c.Call(tt.op, tt.body)
		must.OK(t, err, "%s", tt.name)
		expect.Equal(t, f.Code, tt.want, "%s", tt.name)
		expect.That(t, f.Code == jute.OK || len(f.Body) <= 0, "%s: error reply with a body", tt.name)
		expect.That(t, f.Zxid > 0 || tt.op == jute.OpSASL, "%s: zxid %d", tt.name, f.Zxid)
	}
	alive(t, c)
	expect.Equal(t, r.status().AllWatches, 0, "watches set by requests that failed")
}

// A malformed frame ends the connection after the replies to the earlier frames. The session lives on.
func TestImpossibleFramesCloseTheConnectionOnly(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	frame := func(n int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, max(0, min(n, 16)))...)
	}
	for name, bad := range map[string][]byte{
		"negative": frame(-1), "minimum": frame(math.MinInt32), "too long": frame(0x100000)[:4],
		"too long with header": frame(0x100000), "beyond any watch list": frame(inbox.MaxWatchFrame + 1),
		"empty": frame(0), "4 bytes": frame(4), "7 bytes": frame(7), "a word": []byte("ruok"),
		"a second handshake": wire.AppendConnectRequest(nil, wire.NewSession(1000)),
	} {
		c := r.attach(a.Session)
		var p batch
		p.add(jute.OpGetData, wire.PathWatch("/", false))
		must.OK(t, c.WriteRaw(append(p.b, bad...)))
		wantKinds(t, c, 1)
		if name == "a second handshake" {
			// The server reads the second handshake's protocol version and zxid as request 0, operation 0.
			expect.Equal(t, must.Get(c.Next())(t).Code, jute.Unimplemented, "second handshake")
		}
		expect.OK(t, c.Closed(), "%s", name)
	}
	r.attach(a.Session)
}

func TestFrameLimitIsExact(t *testing.T) {
	const limit = 0xfffff
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "", 0)
	overhead := inbox.HeaderSize + len(wire.SetData("/a", nil, -1))
	for n, ok := range map[int]bool{limit - 1: true, limit: true, limit + 1: false} {
		must.OK(t, c.WriteRaw(wire.AppendRequest(nil, 1, jute.OpSetData, wire.SetData("/a", make([]byte, n-overhead),
			-1))))
		f, err := c.Next()
		expect.Equal(t, err == nil && f.Code == jute.OK, ok, "frame of %d: %+v, %v", n, f.Code, err)
		if !ok {
			c = r.attach(c.Session)
		}
	}
}

func TestSetWatchesMayExceedTheFrameLimit(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	path := "/" + strings.Repeat("x", 99)
	body := wire.SetWatches(1<<60, nil, slices.Repeat([]string{path}, 20_000), nil)
	call(t, c, jute.OK, jute.OpSetWatches, body)
	expect.Equal(t, r.status().AllWatches, 1, "watches")
	body = wire.SetWatches(0, nil, nil, slices.Repeat([]string{""}, 300_000))
	must.OK(t, c.SendXid(3, jute.OpSetWatches, body))
	for events := 0; ; events++ {
		f := must.Get(c.Next())(t)
		if f.Event == nil {
			t.Logf("%d catch-up events", events)
			break
		}
	}
	alive(t, c)
}

func TestBadInputLeavesNothingBehind(t *testing.T) {
	r := newRig(t, options.Options{})
	for i := range 50 {
		c := r.client()
		must.OK(t, c.WriteRaw(fmt.Appendf(nil, "\x00\x00\x00\x20garbage %d", i)))
		c.Close()
	}
	eventually(t, "no connection left", func() bool {
		return r.srv.conns.Empty()
	})
}
