package clients

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A write is charged by its outcome, however long its frame is. A read is charged by its path, its answer and
// the identities of its client. setWatches is charged for each watch.
func TestRequestsAreCharged(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	account := func() *budget.Account {
		for _, c := range r.srv.conns.All() {
			return c.Account()
		}
		t.Fatal("no connection")
		return nil
	}()
	var ops []wire.Op
	var paths, deep []string
	for i := range 1000 {
		ops = append(ops, wire.Op{Type: jute.OpCheck, Body: wire.PathVersion("/", -1)})
		paths = append(paths, fmt.Sprint("/w", i))
		deep = append(deep, fmt.Sprint(strings.Repeat("/d", 300), i))
	}
	acl := make([]jute.ACL, 900)
	for i := range acl {
		acl[i] = jute.ACL{Perms: 31, ID: jute.ID{Scheme: "ip", ID: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}
	}
	call(t, c, jute.OK, jute.OpCreate, wire.Create("/acl", nil, append(acl, jute.WorldAnyone...), 0))
	r.srv.conns.Shares.Settle(account, 1000*time.Hour) // so far in the future that nothing more is paid
	for name, x := range map[string]struct {
		op          jute.OpCode
		body        []byte
		least, most int64
	}{
		"ping":         {jute.OpPing, nil, request.PlainSteps, request.PlainSteps},
		"exists":       {jute.OpExists, wire.PathWatch("/", false), 1, 20},
		"sync":         {jute.OpSync, wire.Path("/"), 1, 20},
		"multi":        {jute.OpMulti, wire.Multi(ops...), 2500, 2700},
		"deep":         {jute.OpExists, wire.PathWatch(strings.Repeat("/a", 1000), false), 280, 300},
		"watch":        {jute.OpExists, wire.PathWatch("/w", true), 10, 12},
		"watches":      {jute.OpSetWatches, wire.SetWatches(1<<60, nil, paths, nil), 10_000, 11_000},
		"deep watches": {jute.OpSetWatches, wire.SetWatches(1<<60, nil, deep, nil), 100_000, 120_000},
		"refused":      {jute.OpCreate, wire.Create("no slash", nil, make([]jute.ACL, 50_000), 0), 6_000, 6_100},
		"not a multi":  {jute.OpMulti, wire.Multi(ops...)[:17_000], 170, 200},
		"long ACL":     {jute.OpGetACL, wire.Path("/acl"), 250, 300},
		"multiRead": {jute.OpMultiRead,
			wire.Multi(slices.Repeat([]wire.Op{{Type: jute.OpGetData, Body: wire.PathWatch("/", false)}}, 1000)...),
			2500, 4500},
	} {
		before := account.Owed()
		must.Get(c.Call(x.op, x.body))(t)
		must.OK(t, c.Ping()) // wait, because a read may be charged just after its reply
		if got := account.Owed() - before - request.PlainSteps; got < x.least || got > x.most {
			t.Errorf("%s costs %d steps, want %d to %d", name, got, x.least, x.most)
		}
	}
}

// A watching client pays for the search for its identities in the ACL of the node.
func TestWatchersPayForTheirIdentities(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	from := r.srv.conns.All()[0].Account()
	r.srv.conns.Shares.Settle(from, 1000*time.Hour) // so far in the future that nothing more is paid
	must.Get(c.Create("/n", nil, 0))(t)
	cost := func() int64 {
		must.OK(t, c.AddWatch("/n", jute.AddWatchPersistent))
		before := from.Owed()
		must.Get(c.Call(jute.OpSetData, wire.SetData("/n", nil, -1)))(t)
		must.OK(t, c.Ping())
		return from.Owed() - before
	}
	few := cost()
	for i := range 50 {
		must.Get(c.Call(jute.OpAuth, wire.Auth("digest", fmt.Sprintf("%d:p", i))))(t)
	}
	// The ACL is searched twice: for the right to write, and for the right to read the event.
	if more := cost() - few; more < 45 || more > 60 {
		t.Errorf("50 identities cost %d steps more", more)
	}
}

// When a connection ends, the memory of its watches no longer counts for its address.
func TestWatchesOfAConnectionAreGivenBack(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	from := r.srv.conns.All()[0].Account()
	for i := range 2 * watchers.WatchStep / 1000 {
		must.Get(c.Call(jute.OpExists, wire.PathWatch(fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 1000)), true)))(t)
	}
	expect.That(t, from.Watches() >= watchers.WatchStep, "the address has %d bytes of watches",
		from.Watches())
	must.OK(t, c.CloseSession())
	must.Await(t, "the address still has them", 30*time.Second,
		func() bool { return from.Watches() == 0 })
}

// unpaid clears the debt of a client's address, stops its payments, and returns its account.
func unpaid(r *rig, c *wire.Conn) *budget.Account {
	a := r.srv.conns.Of(c.Session.ID).Account()
	r.srv.conns.Shares.Settle(a, math.MaxInt64)
	a.Forgive()
	return a
}

// An address pays for every request of its clients, even for requests that take no lock.
func TestAnAddressPaysForEveryRequest(t *testing.T) {
	r := newRig(t, options.Options{SASL: &sasl.Mechanisms{Users: saslUsers}})
	for name, x := range map[string]struct {
		op   jute.OpCode
		body wire.Body
	}{
		"ping":     {jute.OpPing, nil},
		"whoAmI":   {jute.OpWhoAmI, nil},
		"auth":     {jute.OpAuth, wire.Auth("digest", "a:b")},
		"sasl":     {jute.OpSASL, wire.Body{}.Buf(nil)},
		"check":    {jute.OpCheck, wire.PathVersion("/", -1)},
		"exists":   {jute.OpExists, wire.PathWatch("/", false)},
		"set":      {jute.OpSetData, wire.SetData("/", nil, -1)},
		"watches":  {jute.OpSetWatches, wire.SetWatches(0, []string{"/"}, nil, nil)},
		"reconfig": {jute.OpReconfig, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.client()
			owed := unpaid(r, c)
			must.Get(c.Send(x.op, x.body))(t)
			must.Get(c.Next())(t)
			eventually(t, "charged", func() bool { return owed.Owed() > 0 })
		})
	}
}

// An address also pays for connections that get no session, and for TLS handshakes.
func TestAnAddressPaysForItsConnections(t *testing.T) {
	r, dial := secureRig(t, options.Options{})
	c := r.client()
	owed := unpaid(r, c)
	wrong := c.Session
	wrong.Password = bytes.Repeat([]byte{1}, jute.PasswordSize)
	must.Fails(t, r.dial().Connect(wire.Attach(wrong, 0)), "a wrong password is taken")
	expect.That(t, owed.Owed() > 0, "a refused session costs nothing")
	owed.Forgive()
	dial()
	expect.That(t, owed.Owed() >= request.HandshakeSteps, "a TLS handshake costs %d steps", owed.Owed())
}
