package tree

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/bounds"
)

// A budget can be spent to its last step. One step more is refused.
func TestBudgetEndsAtItsLastStep(t *testing.T) {
	c := &Change{Steps: bounds.MaxSteps - 5}
	expect.That(t, c.spend(5), "the last 5 steps: %d are spent: want c.spend(5)", c.Steps)
	expect.Equal(t, c.Steps, bounds.MaxSteps, "the last 5 steps: %d are spent: c.Steps", c.Steps)
	expect.That(t, c.spend(0), "a step more: %d are spent: want c.spend(0)", c.Steps)
	expect.That(t, !c.spend(1), "a step more: %d are spent: want !c.spend(1)", c.Steps)
	expect.Equal(t, c.Steps, bounds.MaxSteps, "a step more: %d are spent: c.Steps", c.Steps)
	c = &Change{Steps: bounds.MaxSteps - 5}
	expect.That(t, !c.spend(6), "6 of 5 steps: %d are spent: want !c.spend(6)", c.Steps)
	expect.Equal(t, c.Steps, bounds.MaxSteps, "6 of 5 steps: %d are spent: c.Steps", c.Steps)
	expect.That(t, !c.spend(1), "6 of 5 steps: %d are spent: want !c.spend(1)", c.Steps)
}

// A request changes nothing if its budget ends at any step before the last. With just enough budget it
// succeeds.
func TestRequestsChangeNothingBeyondTheirBudget(t *testing.T) {
	fresh := func() *Tree {
		tr, c := New(), &Change{Zxid: 1}
		for _, path := range []string{"/n", "/parent"} {
			_, code := tr.create(c, jute.OpCreate, &jute.CreateRequest{Path: path,
				ACL: jute.WorldAnyone}, nil)
			must.Equal(t, code, jute.OK)
		}
		return tr
	}
	at := jute.PathVersion{Path: "/n", Version: -1}
	for name, run := range map[string]func(tr *Tree, c *Change) ([]byte, jute.ErrCode){
		"create": func(tr *Tree, c *Change) ([]byte, jute.ErrCode) {
			r := &jute.CreateRequest{Path: "/parent/n", ACL: jute.WorldAnyone}
			return tr.create(c, jute.OpCreate, r, []byte("before"))
		},
		"delete": func(tr *Tree, c *Change) ([]byte, jute.ErrCode) { return []byte("before"), tr.delete(c, &at) },
		"setData": func(tr *Tree, c *Change) ([]byte, jute.ErrCode) {
			return tr.setDataOf(c, &jute.SetDataRequest{PathVersion: at, Data: make([]byte, 1600)}, []byte("before"))
		},
	} {
		whole := &Change{Zxid: 2}
		_, code := run(fresh(), whole)
		must.That(t, code == jute.OK && whole.Steps >= 8, "%s: %v after %d steps", name, code, whole.Steps)
		for left := range whole.Steps + 1 {
			tr := fresh()
			digest, nodes := tr.Digest(), tr.Count()
			c := &Change{Zxid: 2, Steps: bounds.MaxSteps - left}
			out, code := run(tr, c)
			must.OK(t, tr.Verify())
			if left == whole.Steps {
				expect.Equal(t, code, jute.OK, "%s with %d steps: code", name, left)
				expect.That(t, tr.Digest() != digest,
					"%s with %d steps: %v: want tr.Digest() != digest", name, left, code)
				expect.Equal(t, c.Steps, bounds.MaxSteps, "%s with %d steps: c.Steps", name, left)
				continue
			}
			expect.Equal(t, code, jute.BadArguments,
				"%s with %d of %d steps: code", name, left, whole.Steps)
			expect.Equal(t, tr.Digest(), digest,
				"%s with %d of %d steps: tr.Digest()", name, left, whole.Steps)
			expect.Equal(t, tr.Count(), nodes,
				"%s with %d of %d steps: tr.Count()", name, left, whole.Steps)
			if expect.Equal(t, len(c.Events), 0,
				"%s with %d of %d steps: len(c.Events)", name, left, whole.Steps) {
				expect.Equal(t, c.Steps, bounds.MaxSteps,
					"%s with %d of %d steps: c.Steps", name, left, whole.Steps)
				expect.Equal(t, string(out), "before",
					"%s with %d of %d steps: string(out)", name, left, whole.Steps)
			}
		}
	}
}

// A multi reserves the room that it needs. With less it would copy its reply again and again.
func TestMultiReservesWhatItNeeds(t *testing.T) {
	tr := New()
	header := func(b []byte, op jute.OpCode) []byte { return jute.AppendMultiHeader(b, op, false, -1) }
	create := func(b []byte, op jute.OpCode, path string, flags int32) []byte {
		b = jute.AppendBuffer(jute.AppendString(header(b, op), path), nil)
		return jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
	}
	b := create(nil, jute.OpCreate, "/a", 0)
	b = create(b, jute.OpCreate2, "/a/b", 0)
	b = create(b, jute.OpCreateContainer, "/c", 4)
	b = jute.AppendLong(create(b, jute.OpCreateTTL, "/t", 5), 1)
	b = create(b, jute.OpCreate, "/a/-", 2)
	b = jute.AppendInt(jute.AppendBuffer(jute.AppendString(header(b, jute.OpSetData), "/a"), nil), -1)
	for _, op := range []jute.OpCode{jute.OpCheck, jute.OpDelete} {
		b = jute.AppendInt(jute.AppendString(header(b, op), "/a/b"), -1)
	}
	b = jute.AppendMultiHeader(b, jute.OpError, true, -1)

	var all multiSize
	var o multiOp
	d := jute.NewDecoder(b)
	for more, ok := o.next(&d); more; more, ok = o.next(&d) {
		must.That(t, ok, "operation %d is not read", all.ops)
		all.add(&o)
	}
	c := &Change{Zxid: 1}
	out, code, changed := tr.Apply(c, jute.OpMulti, b, nil)
	must.Equal(t, code, jute.OK, "code")
	must.That(t, changed, "%v: want changed", code)
	sequences := 10 * 4 // each create reserves room for a sequence number, even if it is not sequential
	expect.Equal(t, all, multiSize{ops: 8, changes: 7, writes: 1, events: len(c.Events),
		reply: len(out) + sequences - 9}, "8 operations")
}

// The events of a failed multi do not keep nodes in memory.
func TestFailedMultiForgetsItsEvents(t *testing.T) {
	var b []byte
	for range 2 { // the second create fails
		b = jute.AppendString(jute.AppendMultiHeader(b, jute.OpCreate, false, -1), "/a")
		b = jute.AppendInt(jute.AppendACL(jute.AppendBuffer(b, nil), jute.WorldAnyone), 0)
	}
	earlier := Event{Path: "/earlier"}
	c := &Change{Zxid: 1, Events: []Event{earlier}}
	_, code, changed := New().Apply(c, jute.OpMulti, jute.AppendMultiHeader(b, jute.OpError, true, -1), nil)
	must.Equal(t, code, jute.OK, "code")
	must.That(t, !changed, "%v: want !changed", c.Events)
	must.Equal(t, len(c.Events), 1, "len(c.Events)")
	must.Equal(t, c.Events[0], earlier, "c.Events[0]")
	for i, e := range c.Events[1:cap(c.Events)] {
		expect.Equal(t, e, Event{}, "event %d after the end of the slice", i)
	}
}

// A full tree refuses only what needs more room.
func TestFullTreeTakesWhatNeedsNoRoom(t *testing.T) {
	at := jute.PathVersion{Path: "/n", Version: -1}
	set := func(data string) func(tr *Tree, c *Change) jute.ErrCode {
		return func(tr *Tree, c *Change) jute.ErrCode {
			_, code := tr.setDataOf(c, &jute.SetDataRequest{PathVersion: at, Data: []byte(data)}, nil)
			return code
		}
	}
	create := func(path string) func(tr *Tree, c *Change) jute.ErrCode {
		return func(tr *Tree, c *Change) jute.ErrCode {
			_, code := tr.create(c, jute.OpCreate, &jute.CreateRequest{Path: path,
				ACL: jute.WorldAnyone, Data: []byte("1234")}, nil)
			return code
		}
	}
	for name, x := range map[string]struct {
		run  func(tr *Tree, c *Change) jute.ErrCode
		want jute.ErrCode
	}{
		"more data":             {set("12345"), jute.Throttled},
		"as much data":          {set("5678"), jute.OK},
		"less data":             {set("1"), jute.OK},
		"a node":                {create("/m"), jute.Throttled},
		"a node that is there":  {create("/n"), jute.NodeExists},
		"a node without parent": {create("/no/m"), jute.NoNode},
		"the end of a node":     {func(tr *Tree, c *Change) jute.ErrCode { return tr.delete(c, &at) }, jute.OK},
		"a check":               {func(tr *Tree, c *Change) jute.ErrCode { return tr.check(c, &at) }, jute.OK},
	} {
		tr := New()
		must.Equal(t, create("/n")(tr, &Change{Zxid: 1}), jute.OK)
		digest := tr.Digest()
		expect.Equal(t, x.run(tr, &Change{Zxid: 2, Full: true}), x.want, "%s", name)
		if x.want != jute.OK {
			expect.Equal(t, tr.Digest(), digest, "%s is refused and changes something", name)
		}
	}
}

// Each change of any kind becomes the newest change of the tree, except a failed one.
func TestEveryChangeIsTheNewest(t *testing.T) {
	acl := func(path string) []byte {
		return jute.AppendInt(jute.AppendACL(jute.AppendString(nil, path), jute.WorldAnyone), -1)
	}
	create := func(path string, flags int32) []byte {
		b := jute.AppendBuffer(jute.AppendString(nil, path), nil)
		return jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
	}
	version := func(path string) []byte { return jute.AppendInt(jute.AppendString(nil, path), -1) }
	set := func(path string) []byte {
		return jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, path), nil), -1)
	}
	checks := append(jute.AppendMultiHeader(nil, jute.OpCheck, false, -1), version("/")...)
	failing := append(append(jute.AppendMultiHeader(nil, jute.OpSetData, false, -1), set("/")...),
		append(jute.AppendMultiHeader(nil, jute.OpCheck, false, -1), version("/none")...)...)
	tr := New()
	apply := func(op jute.OpCode, body []byte) func(c *Change) {
		return func(c *Change) { tr.Apply(c, op, body, nil) }
	}
	zxid := int64(0)
	for _, x := range []struct {
		name string
		run  func(c *Change)
		same bool
	}{
		{"create", apply(jute.OpCreate, create("/n", 0)), false},
		{"set", apply(jute.OpSetData, set("/n")), false},
		{"setACL", apply(jute.OpSetACL, acl("/n")), false},
		{"delete", apply(jute.OpDelete, version("/n")), false},
		{"failed delete", apply(jute.OpDelete, version("/n")), true},
		{"checks", apply(jute.OpMulti, jute.AppendMultiHeader(checks, jute.OpError, true, -1)), false},
		{"failed multi", apply(jute.OpMulti, jute.AppendMultiHeader(failing, jute.OpError, true, -1)), true},
		{"ephemeral", apply(jute.OpCreate, create("/e", 1)), false},
		{"end of a session", func(c *Change) { tr.CloseSession(c, 7) }, false},
		{"configuration", func(c *Change) { tr.SetConfig(c, nil) }, false},
	} {
		x.run(&Change{Zxid: zxid + 10, Session: 7})
		if !x.same {
			zxid += 10
		}
		expect.Equal(t, tr.Zxid(), zxid, "%s", x.name)
	}
}

// Permissions are checked again for the next request of a client, and for the request of another client.
func TestPermissionsAreAskedAgainForEachRequest(t *testing.T) {
	tr := New()
	c := &Change{Zxid: 1}
	own := jute.ID{Scheme: "digest", ID: "a:b"}
	_, code := tr.create(c, jute.OpCreate, &jute.CreateRequest{Path: "/n",
		ACL: []jute.ACL{{Perms: jute.PermAll, ID: own}}}, nil)
	must.Equal(t, code, jute.OK)
	set := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/n"), nil), -1)
	for _, own := range []bool{true, false, true} {
		c.Zxid++
		c.IDs = []jute.ID{{Scheme: "digest", ID: map[bool]string{true: "a:b", false: "a:c"}[own]}}
		_, code, _ := tr.Apply(c, jute.OpSetData, set, nil)
		expect.Equal(t, code == jute.OK, own, "%v: %v", c.IDs, code)
		expect.Equal(t, c.Steps, map[bool]int{true: 6, false: 3}[own], "steps of the newest request alone")
	}
}
