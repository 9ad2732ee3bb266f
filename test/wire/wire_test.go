package wire_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// TestZlockd tries all methods on zlockd. TestRealServer, which needs a ZooKeeper, tries them on the
// reference server.
func TestZlockd(t *testing.T) {
	tryAll(t, func(t *testing.T) string { return zlocktest.Start(t).Addr })
}

// tryAll runs each test of the methods on a server of its own.
func tryAll(t *testing.T, start func(*testing.T) string) {
	for name, try := range map[string]func(*testing.T, string){
		"calls decode": callsDecode, "multi results decode": multiResultsDecode, "drop and attach": dropAndAttach,
	} {
		t.Run(name, func(t *testing.T) { try(t, start(t)) })
	}
}

func callsDecode(t *testing.T, addr string) {
	c := open(t, addr)
	if len(c.Session.Password) != jute.PasswordSize || c.Session.Timeout != 30000 || !c.Session.HasReadOnly {
		t.Errorf("session %+v", c.Session)
	}
	check(t, c.Auth("digest", "u1:p1"))
	path, err := c.Create("/a-", []byte("x"), jute.FlagPersistentSequential)
	check(t, err)
	expect.Equal(t, path, "/a-0000000000", "created")
	_, st, err := c.Create2(jute.OpCreate2, wire.Create("/b", nil, jute.WorldAnyone, jute.FlagEphemeral))
	check(t, err)
	expect.That(t, st.EphemeralOwner == c.Session.ID && st.Czxid == c.Zxid,
		"stat %+v of a node of session %x created at %x", st, c.Session.ID, c.Zxid)
	_, _, err = c.Create2(jute.OpCreateTTL, wire.CreateTTL("/t", nil, jute.WorldAnyone, jute.FlagPersistentTTL,
		1e6))
	check(t, err)
	data, _, err := c.GetData("/b", true)
	check(t, err)
	expect.That(t, data == nil, "null data came back as %q", data)
	_, err = c.SetData("/b", []byte{}, 0)
	check(t, err)
	want := []wire.Event{{Type: jute.EventDataChanged, State: 3, Path: "/b"}}
	expect.List(t, c.Events, want, "events")
	names, _, err := c.Children("/", false)
	check(t, err)
	if want := []string{"a-0000000000", "b", "t", "zookeeper"}; !slices.Equal(names, want) {
		t.Errorf("children %v", names)
	}
	own, err := c.Ephemerals("/")
	check(t, err)
	expect.List(t, own, []string{"/b"}, "ephemerals")
	n, err := c.AllChildrenNumber("/zookeeper")
	check(t, err)
	expect.Equal(t, n, 2, "nodes below /zookeeper")
	ids, err := c.WhoAmI()
	check(t, err)
	if want := []jute.ID{{Scheme: "digest", ID: "u1"}, {Scheme: "ip", ID: "127.0.0.1"}}; !slices.Equal(ids,
		want) {
		t.Errorf("identities %v", ids)
	}
	_, err = c.SetACL("/t", []jute.ACL{{Perms: jute.PermRead, ID: jute.ID{Scheme: "auth"}}}, -1)
	check(t, err)
	acl, _, err := c.GetACL("/t")
	check(t, err)
	if want := []jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "digest", ID: "u1:x"}}}; !slices.Equal(acl, want) {
		t.Errorf("acl %v", acl)
	}
	check(t, c.Sync("/"))
	if err := c.Delete("/t", 7); err != jute.BadVersion {
		t.Errorf("delete of another version: %v", err)
	}
	check(t, c.Delete("/t", 0))
	check(t, c.CloseSession())
}

func multiResultsDecode(t *testing.T, addr string) {
	c := open(t, addr)
	res, err := c.Multi(
		wire.Op{Type: jute.OpCreate, Body: wire.Create("/m", nil, jute.WorldAnyone, 0)},
		wire.Op{Type: jute.OpSetData, Body: wire.SetData("/m", []byte("x"), 0)},
		wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/m", 1)})
	check(t, err)
	if len(res) != 3 || res[0].Path != "/m" || res[1].Stat.Version != 1 || res[2].Type != jute.OpCheck {
		t.Errorf("results %+v", res)
	}
	res, err = c.Multi(
		wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/m", -1)},
		wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/m", -1)})
	check(t, err)
	expect.That(t, len(res) == 2 && res[0].Code == jute.OK && res[1].Code == jute.NoNode,
		"results %+v", res)
	res, err = c.MultiRead(
		wire.Op{Type: jute.OpGetData, Body: wire.PathWatch("/m", false)},
		wire.Op{Type: jute.OpGetChildren, Body: wire.PathWatch("/none", false)})
	check(t, err)
	expect.That(t, len(res) == 2 && string(res[0].Data) == "x" && res[1].Code == jute.NoNode,
		"results %+v", res)
}

func dropAndAttach(t *testing.T, addr string) {
	c := open(t, addr)
	_, err := c.Drop()
	check(t, err)

	d, err := wire.Dial(addr)
	check(t, err)
	check(t, d.Connect(wire.Attach(c.Session, c.Zxid)))
	expect.Equal(t, d.Session.ID, c.Session.ID, "attached to %x", d.Session.ID)
	check(t, d.Silent(50*time.Millisecond))

	wrong := c.Session
	wrong.Password = make([]byte, jute.PasswordSize)
	e, err := wire.Dial(addr)
	check(t, err)
	expect.Is(t, e.Connect(wire.Attach(wrong, 0)), wire.ErrRefused, "wrong password")
	check(t, e.Closed())

	ahead, err := wire.Dial(addr)
	check(t, err)
	expect.Is(t, ahead.Connect(wire.Attach(c.Session, 1<<60)), io.EOF, "zxid ahead")
}

func open(t *testing.T, addr string) *wire.Conn {
	t.Helper()
	c, err := wire.Open(addr)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	must.OK(t, err)
}
