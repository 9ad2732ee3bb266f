package tree_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// A multi may have ten thousand operations on ordinary paths, or as many checks as a frame of 1 MB holds. If
// it costs more than its budget, it changes nothing.
func TestRequestsHoldTheirBudget(t *testing.T) {
	race.Alone(t)
	const frame = 1_048_575
	deep := strings.Repeat("/d", bounds.MaxDepth-1)
	tr := tree.New()
	c := &tree.Change{Session: 1}
	for depth := 2; depth <= len(deep); depth += 2 {
		do(t, tr, c, jute.OpCreate, createBody(deep[:depth], "", 0), nil)
	}
	do(t, tr, c, jute.OpCreate, createBody("/service", "", 0), nil)
	do(t, tr, c, jute.OpCreate, createBody("/service/locks", "", 0), nil)
	auth := slices.Repeat([]jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "auth"}}}, 20)
	for i := range auth {
		auth[i].Perms = int32(i)
	}
	ids := []jute.ID{{Scheme: "ip", ID: "10.0.0.1"}}
	for i := range 45 {
		ids = append(ids, acl.DigestID(fmt.Sprint(i)))
	}
	node := func(i int) string { return fmt.Sprintf("/service/locks/node-%010d", i) }
	const ordinary, full = 10_000, 1 << 20
	for _, x := range []struct {
		name string
		most int
		op   jute.OpCode
		body func(i int) []byte
		want jute.ErrCode
	}{
		{"checks", full, jute.OpCheck, func(int) []byte { return pathVersion("/") }, jute.OK},
		{"creates", ordinary, jute.OpCreate, func(i int) []byte { return createBody(node(i), "host:pid", 1) }, jute.OK},
		{"writes", ordinary, jute.OpSetData, func(i int) []byte { return setBody(node(i), "host:pid") }, jute.OK},
		{"deletes", ordinary, jute.OpDelete, func(i int) []byte { return pathVersion(node(i)) }, jute.OK},
		{"short creates", full, jute.OpCreate, func(i int) []byte { return createBody(fmt.Sprint("/", i), "", 0) },
			jute.BadArguments},
		{"short writes", full, jute.OpSetData, func(i int) []byte { return setBody("/", "x") }, jute.BadArguments},
		{"deep writes", full, jute.OpSetData, func(int) []byte { return setBody(deep, "x") }, jute.BadArguments},
		{"deep creates", full, jute.OpCreate,
			func(i int) []byte { return createBody(fmt.Sprint(deep, "/", i), "", 0) }, jute.BadArguments},
		{"long ACLs", full, jute.OpCreate, func(i int) []byte {
			b := jute.AppendBuffer(jute.AppendString(nil, fmt.Sprint("/l", i)), nil)
			return jute.AppendInt(jute.AppendACL(b, auth), 0)
		}, jute.BadArguments},
		{"new ACLs", full, jute.OpCreate, func(i int) []byte {
			b := jute.AppendBuffer(jute.AppendString(nil, fmt.Sprint("/n", i)), nil)
			acl := []jute.ACL{{Perms: 1, ID: jute.ID{Scheme: "ip", ID: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}}
			return jute.AppendInt(jute.AppendACL(b, acl), 0)
		}, jute.BadArguments},
	} {
		var body []byte
		n := 0
		for ; n < x.most; n++ {
			op := x.body(n)
			if len(body)+len(op)+18 > frame {
				break
			}
			body = append(jute.AppendMultiHeader(body, x.op, false, -1), op...)
		}
		must.That(t, x.most != ordinary || n >= x.most, "%d %s fill a frame", n, x.name)
		body = jute.AppendMultiHeader(body, jute.OpError, true, -1)
		before, digest := Dump(tr), tr.Digest()
		c := &tree.Change{Zxid: tr.Zxid() + 1, Session: 1, IDs: ids}
		reply, code, changed := tr.Apply(c, jute.OpMulti, body, nil)
		d := jute.NewDecoder(reply)
		code = cmp.Or(code, d.MultiHeader().Err)
		for !changed && code == jute.OK && d.Err() == nil {
			d.Int()
			code = d.MultiHeader().Err
		}
		t.Logf("%d %s cost %d steps", n, x.name, c.Steps)
		expect.That(t, code == x.want && changed == (x.want == jute.OK),
			"%s: %v, changed: %v, want %v", x.name, code, changed, x.want)
		if !changed && (tr.Digest() != digest || Dump(tr) != before || len(c.Events) > 0) {
			t.Errorf("%s: something has changed", x.name)
		}
		expect.That(t, c.Steps <= bounds.MaxSteps,
			"%s cost %d steps: want c.Steps <= bounds.MaxSteps", x.name, c.Steps)
		expect.That(t, changed || c.Steps >= bounds.MaxSteps,
			"%s cost %d steps: want changed || c.Steps >= bounds.MaxSteps", x.name, c.Steps)
	}
}

// The cost of a request decides whether it succeeds, so all servers and releases must count alike.
func TestStepsAreThoseOfTheRelease(t *testing.T) {
	tr := tree.New()
	path := "/a" + strings.Repeat("/some-name", 20)
	for at := range path {
		if at > 0 && path[at] == '/' {
			do(t, tr, &tree.Change{Session: 1}, jute.OpCreate, createBody(path[:at], "", 0), nil)
		}
	}
	do(t, tr, &tree.Change{Session: 1}, jute.OpCreate, createBody(path, "", 0), nil)
	own := jute.AppendBuffer(jute.AppendString(nil, "/b"), make([]byte, 1000))
	own = jute.AppendInt(jute.AppendACL(own, []jute.ACL{{Perms: 31, ID: acl.DigestID("u:p")}}), 0)
	for _, x := range []struct {
		name string
		op   jute.OpCode
		body []byte
		want int
	}{
		{"create", jute.OpCreate, createBody("/c", "", 0), 12},
		{"create with an ACL and data", jute.OpCreate, own, 26},
		{"deep create", jute.OpCreate, createBody(path+"/x", "", 0), 30},
		{"set", jute.OpSetData, setBody(path, "x"), 19},
		{"check", jute.OpCheck, pathVersion(path), 11},
		{"delete", jute.OpDelete, pathVersion(path + "/x"), 26},
		{"delete with its ACL", jute.OpDelete, pathVersion("/b"), 22},
	} {
		body := jute.AppendMultiHeader(nil, x.op, false, -1)
		body = jute.AppendMultiHeader(append(body, x.body...), jute.OpError, true, -1)
		c := &tree.Change{Session: 1, Zxid: tr.Zxid() + 1}
		_, code, _ := tr.Apply(c, jute.OpMulti, body, nil)
		expect.Equal(t, code, jute.OK, "%s: code", x.name)
		expect.Equal(t, c.Steps, x.want, "%s: c.Steps", x.name)
	}
}

// A setACL pays for the data of its node, which the digest reads.
func TestSetACLPaysForTheData(t *testing.T) {
	tr := tree.New()
	cost := func(size int) int {
		path := fmt.Sprintf("/%d", size)
		do(t, tr, &tree.Change{Session: 1}, jute.OpCreate, createBody(path, strings.Repeat("x", size), 0), nil)
		c := &tree.Change{Session: 1, Zxid: tr.Zxid() + 1}
		body := jute.AppendInt(jute.AppendACL(jute.AppendString(nil, path), jute.WorldAnyone), -1)
		_, code, _ := tr.Apply(c, jute.OpSetACL, body, nil)
		must.Equal(t, code, jute.OK)
		return c.Steps
	}
	expect.Equal(t, cost(160_000)-cost(0), 1000)
}

// A multiRead has the same budget as a write.
func TestMultiReadsHoldTheirBudget(t *testing.T) {
	race.Alone(t)
	tr := tree.New()
	c := &tree.Change{Session: 1}
	for i := range 250_000 {
		c.Zxid++
		c.Events = c.Events[:0]
		tr.Apply(c, jute.OpCreate, createBody(fmt.Sprintf("/%020d", i), "", 0), nil)
	}
	for n, want := range map[int]jute.ErrCode{1: jute.OK, 2: jute.BadArguments} {
		var body []byte
		for range n {
			body = jute.AppendMultiHeader(body, jute.OpGetChildren, false, -1)
			body = jute.AppendBool(jute.AppendString(body, "/"), false)
		}
		body = jute.AppendMultiHeader(body, jute.OpError, true, -1)
		if _, _, code := tr.AppendMultiRead(nil, nil, body); code != want {
			t.Errorf("%d lists of 250,000 names: %v, want %v", n, code, want)
		}
	}
}

// L12: the depth of a path is limited, and no function recurses for each name of a path.
func TestPathsHoldTheirLimits(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{IDs: []jute.ID{{Scheme: "super"}}, Session: 1}
	path := ""
	for depth := 1; depth <= bounds.MaxDepth+1; depth++ {
		path += "/d"
		c.Zxid++
		_, code, _ := tr.Apply(c, jute.OpCreate, createBody(path, "x", 0), nil)
		if want := map[bool]jute.ErrCode{
			true: jute.OK, false: jute.BadArguments}[depth <= bounds.MaxDepth]; code != want {
			t.Fatalf("depth %d: %v", depth, code)
		}
	}
	for depth, want := range map[int]bool{bounds.MaxDepth: true, bounds.MaxDepth + 1: false} {
		expect.Equal(t, bounds.ValidPath(strings.Repeat("/x", depth)), want, "depth %d", depth)
	}
	for size, want := range map[int]bool{bounds.MaxPath: true, bounds.MaxPath + 1: false} {
		expect.Equal(t, bounds.ValidPath("/"+strings.Repeat("x", size-1)), want, "%d bytes", size)
	}
	long := "/" + strings.Repeat("y", bounds.MaxPath-11)
	// A sequential create appends ten digits to the name.
	for name, want := range map[string]jute.ErrCode{long: jute.OK, long + "y": jute.BadArguments} {
		c.Zxid++
		if _, code, _ := tr.Apply(c, jute.OpCreate, createBody(name, "", jute.FlagPersistentSequential),
			nil); code != want {
			t.Errorf("%d bytes and a number: %v", len(name), code)
		}
	}
	expect.OK(t, tr.Verify())
	got, err := load(snapshotOf(tr, 10)...)
	if expect.OK(t, err) {
		expect.Equal(t, got.Count(), tr.Count(), "got.Count()")
	}
	seen := 0
	tr.Walk(func(string, tree.Info) bool { seen++; return seen < 500 })
	expect.Equal(t, seen, 500, "Walk does not stop")
}

// F12: a node that was accepted under other limits loads.
func TestLoaderKnowsNoLimits(t *testing.T) {
	b := jute.AppendLong(jute.AppendLong(jute.AppendLong([]byte{'H', 1}, 0), 0), 2004)
	b = jute.AppendACL(append(b, 'A'), jute.WorldAnyone)
	put := func(path string) {
		b = jute.AppendInt(jute.AppendInt(jute.AppendString(append(b, 'N', 0, 0, 0, 0), path), -1), 0)
		b = append(b, make([]byte, 6*8+3*4+1)...)
	}
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		put(p)
	}
	for depth := range 2000 {
		put(strings.Repeat("/x", depth+1))
	}
	b = jute.AppendLong(append(b, 'E'), 2004)
	expect.Equal(t, must.Get(load(b))(t).Count(), 2004)
}

func TestFailedMultisLeaveNoTrace(t *testing.T) {
	w := grown(11, 400)
	before, digest := bytes.Join(snapshotOf(w.tree, 64), nil), w.tree.Digest()
	c := &tree.Change{Zxid: w.zxid + 1, Session: 1}
	failing := append(jute.AppendMultiHeader(nil, jute.OpDelete, false, -1), pathVersion("/no/such")...)
	failing = jute.AppendMultiHeader(failing, jute.OpError, true, -1)
	for range 2000 {
		op, body := w.g.Request()
		c.IDs = w.g.Identities()
		if end := len(body) - 9; op == jute.OpMulti {
			body = body[:end]
		} else {
			body = append(jute.AppendMultiHeader(nil, op, false, -1), body...)
		}
		_, _, changed := w.tree.Apply(c, jute.OpMulti, append(body, failing...), nil)
		must.That(t, !changed, "it did not fail: want !changed")
		must.That(t, len(c.Events) <= 0, "it did not fail: want len(c.Events) <= 0")
	}
	expect.Equal(t, w.tree.Digest(), digest,
		"a failed multi left a trace: w.tree.Digest()")
	expect.That(t, bytes.Equal(bytes.Join(snapshotOf(w.tree, 64), nil), before),
		"a failed multi left a trace: want bytes.Equal(bytes.Join(snapshotOf(w.tree, 64), nil), before)")
	expect.OK(t, w.tree.Verify())
}

// The room that is reserved for a long answer is enough, and not much more.
func TestAnswerSizeIsThatOfTheAnswer(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{IDs: []jute.ID{{Scheme: "super"}}, Session: 7}
	create := func(path, data string, flags int32) {
		c.Zxid++
		_, code, _ := tr.Apply(c, jute.OpCreate, createBody(path, data, flags), nil)
		must.Equal(t, code, jute.OK, "%v", path)
	}
	create("/dir", strings.Repeat("d", 50_000), 0)
	for i := range 500 {
		create(fmt.Sprintf("/dir/%s%d", strings.Repeat("n", i%90), i), "", jute.FlagEphemeral)
	}
	pathWatch := func(path string) []byte { return jute.AppendBool(jute.AppendString(nil, path), false) }
	var reads []byte
	for range 20 {
		reads = append(jute.AppendMultiHeader(reads, jute.OpGetChildren, false, -1), pathWatch("/dir")...)
		reads = append(jute.AppendMultiHeader(reads, jute.OpGetData, false, -1), pathWatch("/dir")...)
		reads = append(jute.AppendMultiHeader(reads, jute.OpGetData, false, -1), pathWatch("/missing")...)
	}
	reads = jute.AppendMultiHeader(reads, jute.OpError, true, -1)
	children, _ := tr.AppendChildrenStat(nil, c.IDs, "/dir")
	multi, _, _ := tr.AppendMultiRead(nil, c.IDs, reads)
	data, _ := tr.AppendData(nil, c.IDs, "/dir")
	list := make([]jute.ACL, 500)
	for i := range list {
		list[i] = jute.ACL{Perms: 31, ID: jute.ID{Scheme: "digest", ID: fmt.Sprint(i, ":x")}}
	}
	body := jute.AppendACL(jute.AppendString(jute.AppendString(nil, "/acl"), ""), list)
	do(t, tr, c, jute.OpCreate, jute.AppendInt(body, 0), nil)
	acl, _ := tr.AppendACL(nil, c.IDs, "/acl")
	for name, x := range map[string]struct {
		op     jute.OpCode
		body   []byte
		answer []byte
	}{
		"children":   {jute.OpGetChildren2, pathWatch("/dir"), children},
		"ephemerals": {jute.OpGetEphemerals, jute.AppendString(nil, "/"), tr.AppendEphemerals(nil, 7, "/")},
		"multiRead":  {jute.OpMultiRead, reads, multi},
		"data":       {jute.OpGetData, pathWatch("/dir"), data},
		"ACL":        {jute.OpGetACL, jute.AppendString(nil, "/acl"), acl},
	} {
		want := len(x.answer)
		if got, _ := tr.AnswerSize(x.op, 7, x.body); got < want-100 || got > want+want/20 {
			t.Errorf("%s: %d, the answer has %d bytes", name, got, want)
		}
	}
	for op, body := range map[jute.OpCode][]byte{jute.OpGetData: pathWatch("/none"),
		jute.OpGetChildren: pathWatch("/none"), jute.OpMultiRead: {1, 2}} {
		got, _ := tr.AnswerSize(op, 7, body)
		expect.That(t, got <= 200, "%v: %d", op, got)
	}
}

// A path with a NUL anywhere is a bad path, not a missing node.
func TestPathsWithANulAreBad(t *testing.T) {
	tr := tree.New()
	for _, path := range []string{"\x00/a", "/\x00", "/a\x00", "/a\x00/b", "\x00"} {
		for op, body := range map[jute.OpCode][]byte{
			jute.OpCreate: createBody(path, "", 0),
			jute.OpDelete: pathVersion(path),
		} {
			_, code, _ := tr.Apply(&tree.Change{Zxid: 1}, op, body, nil)
			expect.Equal(t, code, jute.BadArguments, "%v of %q", op, path)
		}
	}
}

// The text of a quota may be a megabyte, and each change below it needs the quota's numbers. The tree reads
// them when the text is written, and not again.
func TestTextOfAQuotaIsReadOnce(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{Zxid: 1, IDs: []jute.ID{{Scheme: "super"}}}
	const limits, stats = "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"
	for _, path := range []string{"/q", "/zookeeper/quota/q", limits, stats} {
		do(t, tr, c, jute.OpCreate, createBody(path, "", 0), nil)
	}
	text := "count=7;byteHardLimit=10=;byteHardLimit=99,countHardLimit=x"
	do(t, tr, c, jute.OpSetData, setBody(limits, text), nil)
	expect.OK(t, tr.Verify())
	tr.SpoilData(limits, strings.Repeat(",", 1000))
	tr.SpoilData(stats, "bytes=1000")
	set := func(data string) []byte {
		return append(append(jute.AppendMultiHeader(nil, jute.OpSetData, false, -1), setBody("/q", data)...),
			jute.AppendMultiHeader(nil, jute.OpError, true, -1)...)
	}
	for data, fits := range map[string]bool{"1234567890": true, "12345678901": false} {
		c.Zxid++
		_, _, changed := tr.Apply(c, jute.OpMulti, set(data), nil)
		expect.Equal(t, changed, fits, "%q", data)
	}
	info, _ := tr.Get(stats)
	expect.Equal(t, string(info.Data), "count=1,bytes=10")
}

// Only the beginning of an ACL that is too long is kept.
func TestOnlyTheBeginningOfALongACLIsKept(t *testing.T) {
	body := jute.AppendACL(jute.AppendString(jute.AppendString(nil, "/x"), ""), make([]jute.ACL, 50_000))
	d := jute.NewDecoder(jute.AppendInt(body, 5))
	r := d.CreateRequest(jute.OpCreate)
	must.OK(t, d.Err())
	expect.Equal(t, r.Flags, 5,
		"flags %d, %d entries are kept: r.Flags", r.Flags, len(r.ACL))
	expect.Equal(t, len(r.ACL), jute.KeptACL,
		"flags %d, %d entries are kept: len(r.ACL)", r.Flags, len(r.ACL))
}

// The cost of a session's end includes the data of the session's nodes, because the digest reads them.
func TestEndOfASessionPaysForData(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Zxid: 1, Session: 7, IDs: []jute.ID{{Scheme: "super"}}}
	for i := range 10 {
		body := createBody(fmt.Sprint("/e", i), strings.Repeat("x", 100_000), jute.FlagEphemeral)
		do(t, tr, c, jute.OpCreate, body, nil)
	}
	c.Steps = 0
	tr.CloseSession(c, 7)
	expect.That(t, c.Steps > 6000, "%d steps for 1 MB", c.Steps)
}

// A multiRead of missing nodes ends at the budget of steps, although its answers are short.
func TestMultiReadsOfNothingHoldTheirBudget(t *testing.T) {
	var body []byte
	for range bounds.MaxSteps {
		body = append(jute.AppendMultiHeader(body, jute.OpGetData, false, -1), 0, 0, 0, 2, '/', 'x', 0)
	}
	body = jute.AppendMultiHeader(body, jute.OpError, true, -1)
	_, steps, code := tree.New().AppendMultiRead(nil, nil, body)
	expect.That(t, code == jute.BadArguments && steps == bounds.MaxSteps, "%v, %d steps", code, steps)
}

// A sweep finds all nodes that are due, a few at a time.
func TestReapableNodesAreFoundInPieces(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Zxid: 1}
	for i := range 1200 {
		body := createBody(fmt.Sprint("/t", i), "", jute.FlagPersistentTTL)
		do(t, tr, c, jute.OpCreateTTL, jute.AppendLong(body, 1+int64(i%2)*100), nil)
	}
	found := 0
	for from, pieces := 0, 0; ; pieces++ {
		var list []string
		list, from = tr.Reapable(50, from, 1000, nil)
		expect.That(t, len(list) <= 250, "%d at once", len(list))
		found += len(list)
		if from == 0 {
			expect.Equal(t, pieces, 2)
			break
		}
	}
	expect.Equal(t, found, 600)
	list, next := tr.Reapable(50, 0, 3, nil)
	if expect.Equal(t, len(list), 3, "%d nodes, up to %d: len(list)", len(list), next) {
		expect.Equal(t, next, 5, "%d nodes, up to %d: next", len(list), next)
	}
}
