package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/watches"
)

// Each part of a request has a price. The prices are part of the log's format.
func TestEveryPartOfARequestHasItsPrice(t *testing.T) {
	const limits, stats = "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"
	own := func(n int) (acl []jute.ACL) {
		for i := range n {
			acl = append(acl, entry(int32(i), "ip", "10.0.0.1"))
		}
		return append(acl, entry(jute.PermAll, "world", "anyone"))
	}
	create := func(path string, data int, acl []jute.ACL) []byte {
		b := jute.AppendBuffer(jute.AppendString(nil, path), make([]byte, data))
		return jute.AppendInt(jute.AppendACL(b, acl), 0)
	}
	setACL := func(path string, acl []jute.ACL) []byte {
		return jute.AppendInt(jute.AppendACL(jute.AppendString(nil, path), acl), -1)
	}
	multi := func(op jute.OpCode, bodies ...[]byte) (b []byte) {
		for _, body := range bodies {
			b = append(jute.AppendMultiHeader(b, op, false, -1), body...)
		}
		return jute.AppendMultiHeader(b, jute.OpError, true, -1)
	}
	many := []jute.ID{id("ip", "10.0.0.1"), acl.DigestID("a"), acl.DigestID("b"), acl.DigestID("c"),
		acl.DigestID("d"), acl.DigestID("e"), acl.DigestID("f")}
	long := "/" + strings.Repeat("n", 64*5)
	deep := strings.Repeat("/some-name", 41) // the first 21 names exist, the last 20 do not
	for _, x := range []struct {
		name  string
		op    jute.OpCode
		body  []byte
		ids   []jute.ID
		quota bool
		want  int
	}{
		{name: "create", op: jute.OpCreate, body: create("/c", 0, jute.WorldAnyone), want: 2 + 1 + 9},
		{name: "create by a client with 7 identities", op: jute.OpCreate, body: create("/c", 0, jute.WorldAnyone),
			ids: many, want: 2 + 4 + 9},
		{name: "create with 4 new entries", op: jute.OpCreate, body: create("/c", 0, own(3)),
			want: 2 + 1 + 9 + 2*(4+4-2) + 4*(1+4)},
		{name: "create with an ACL that another node has", op: jute.OpCreate, body: create("/c", 0, own(1)),
			want: 2 + 1 + 9 + 2*(2+2-2)},
		{name: "create with data", op: jute.OpCreate, body: create("/c", 1600, jute.WorldAnyone), want: 2 + 1 + 9 + 10},
		{name: "create with very much data", op: jute.OpCreate, body: create("/c", 13_000_000, jute.WorldAnyone),
			want: 2 + 1 + 9 + 80_000},
		{name: "create with a long name", op: jute.OpCreate, body: create(long, 0, jute.WorldAnyone),
			want: 2 + 5 + 1 + 9 + 2*5},
		{name: "create in a quota", op: jute.OpCreate, body: create("/q/c", 0, jute.WorldAnyone), quota: true,
			want: 2 + 1 + 9 + 2*2 + 6},
		{name: "create beside a quota", op: jute.OpCreate, body: create("/d/c", 0, jute.WorldAnyone), quota: true,
			want: 2 + 1 + 9 + 2*1},
		{name: "set", op: jute.OpSetData, body: setBody("/d", ""), want: 2 + 1 + 3},
		{name: "set in a quota", op: jute.OpSetData, body: setBody("/q", ""), quota: true, want: 2 + 1 + 3 + 2*1 + 6},
		{name: "set with data", op: jute.OpSetData, body: setBody("/d", strings.Repeat("x", 1600)),
			want: 2 + 1 + 3 + 10},
		{name: "set in the depth", op: jute.OpSetData, body: setBody(deep[:21*10], "x"),
			want: 2 + 21/4 + 210/64 + 1 + 3 + 210/64 + 210*21/2/750},
		{name: "delete", op: jute.OpDelete, body: pathVersion("/d"), want: 2 + 1 + 5},
		{name: "delete in a quota", op: jute.OpDelete, body: pathVersion("/q/x"), quota: true,
			want: 2 + 1 + 5 + 2 + 6},
		{name: "delete with data and an ACL of its own", op: jute.OpDelete, body: pathVersion("/own"),
			want: 2 + 1 + 5 + 2*4 + 10},
		{name: "delete with an ACL of two", op: jute.OpDelete, body: pathVersion("/two"), want: 2 + 1 + 5},
		{name: "delete in the depth", op: jute.OpDelete, body: pathVersion(deep[:21*10]),
			want: 2 + 21/4 + 210/64 + 1 + 5 + 2*(210/64+210*21/2/750)},
		{name: "setACL", op: jute.OpSetACL, body: setACL("/d", jute.WorldAnyone), want: 2 + 1},
		{name: "setACL to 4 new entries of a node with data", op: jute.OpSetACL, body: setACL("/data", own(3)),
			want: 2 + 1 + 2*(4+4-2) + 4*(1+4) + 10},
		{name: "5 checks", op: jute.OpMulti, body: multi(jute.OpCheck, pathVersion("/d"), pathVersion("/d"),
			pathVersion("/q"), pathVersion("/"), pathVersion("/d")), want: 5/2 + 5*2 + 1},
		{name: "checks of nodes with two ACLs", op: jute.OpMulti, body: multi(jute.OpCheck, pathVersion("/own"),
			pathVersion("/d"), pathVersion("/own")), ids: many, want: 3/2 + 3*2 + 3*4},
	} {
		tr, c := tree.New(), &tree.Change{Session: 1}
		for at := 10; at <= 21*10; at += 10 {
			do(t, tr, c, jute.OpCreate, create(deep[:at], 0, jute.WorldAnyone), nil)
		}
		do(t, tr, c, jute.OpCreate, create("/d", 0, jute.WorldAnyone), nil)
		do(t, tr, c, jute.OpCreate, create("/data", 1600, jute.WorldAnyone), nil)
		do(t, tr, c, jute.OpCreate, create("/own", 1600, own(2)), nil)
		do(t, tr, c, jute.OpCreate, create("/two", 0, own(1)), nil)
		do(t, tr, c, jute.OpCreate, create("/other", 0, own(1)), nil)
		for _, path := range []string{"/q", "/q/x", "/zookeeper/quota/q", limits, stats} {
			if x.quota || path[1] == 'q' {
				do(t, tr, c, jute.OpCreate, create(path, 0, jute.WorldAnyone), nil)
			}
		}
		c.IDs = x.ids
		do(t, tr, c, x.op, x.body, nil)
		expect.Equal(t, c.Steps, x.want, "%s", x.name)
		must.OK(t, tr.Verify())
	}
	expect.Equal(t, bounds.ReadSteps(strings.Repeat("/name", 8), many), 2+8/4+3)
	expect.Equal(t, bounds.WatchSteps(long), 8+5)
}

// A read pays for its path, and for what it copies or builds under the state's lock.
func TestReadsHaveTheirPrices(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Session: 7}
	long := "/" + strings.Repeat("n", 64*5)
	do(t, tr, c, jute.OpCreate, createBody(long, strings.Repeat("x", 4000), 0), nil)
	acl := jute.AppendBuffer(jute.AppendString(nil, "/acl"), nil)
	var list []jute.ACL
	for i := range 40 {
		list = append(list, entry(int32(i), "world", "anyone"))
	}
	do(t, tr, c, jute.OpCreate, jute.AppendInt(jute.AppendACL(acl, list), 0), nil)
	for _, dir := range []string{"/few", "/many"} {
		do(t, tr, c, jute.OpCreate, createBody(dir, "", 0), nil)
		for i := range map[string]int{"/few": 20, "/many": 100}[dir] {
			do(t, tr, c, jute.OpCreate, createBody(fmt.Sprintf("%s/%03d", dir, i), "", jute.FlagEphemeral), nil)
		}
	}
	watch := func(path string) []byte { return jute.AppendBool(jute.AppendString(nil, path), false) }
	multi := func(of ...any) (b []byte) {
		for i := 0; i < len(of); i += 2 {
			b = append(jute.AppendMultiHeader(b, of[i].(jute.OpCode), false, -1), watch(of[i+1].(string))...)
		}
		return jute.AppendMultiHeader(b, jute.OpError, true, -1)
	}
	const data, children = jute.OpGetData, jute.OpGetChildren
	aclSize := len(jute.AppendACL(nil, list))
	type cost struct{ size, steps int }
	for _, x := range []struct {
		name    string
		op      jute.OpCode
		session int64
		body    []byte
		want    cost
	}{
		{"data", data, 0, watch(long), cost{4000, 5}},
		{"no data", data, 0, watch(long + "/x"), cost{0, 5}},
		{"children", children, 0, watch("/few"), cost{20 * 7, 10}},
		{"children2", jute.OpGetChildren2, 0, watch("/many"), cost{100 * 7, 50}},
		{"children of a leaf", children, 0, watch(long), cost{0, 5}},
		{"children of no node", children, 0, watch(long + "/x"), cost{0, 5}},
		{"ACL", jute.OpGetACL, 0, jute.AppendString(nil, "/acl"), cost{aclSize, 10}},
		{"ACL of no node", jute.OpGetACL, 0, jute.AppendString(nil, long+"/x"), cost{0, 5}},
		{"ephemerals", jute.OpGetEphemerals, 7, watch("/"), cost{20*(4+8) + 100*(4+9), 4*120 + 1540/160}},
		{"ephemerals of another session", jute.OpGetEphemerals, 8, watch("/"), cost{0, 0}},
		{"multiRead", jute.OpMultiRead, 0, multi(data, long, data, "/none", children, "/few", children, long),
			cost{100 + 4000 + 100 + 140, 4 + 5 + 5}},
		{"exists", jute.OpExists, 0, watch(long), cost{0, 0}},
	} {
		size, steps := tr.AnswerSize(x.op, x.session, x.body)
		expect.Equal(t, cost{size, steps}, x.want, "%s", x.name)
	}
	ask := func(of ...any) (steps int) {
		_, steps, code := tr.AppendMultiRead(nil, make([]jute.ID, 6), multi(of...))
		must.Equal(t, code, jute.OK)
		return steps
	}
	expect.Equal(t, ask(data, "/none"), 2, "steps of a read of no node")
	expect.Equal(t, ask(data, long), 2+5+4+(4000+4+76)/400, "steps of a read of data")
	expect.Equal(t, ask(data, long, data, "/acl", data, "/acl"), 2+5+4+10+2+4+2, "steps of reads with two ACLs")
	for range 2 {
		expect.Equal(t, ask(children, "/few"), 2+4+10, "steps of a list that is put together each time")
	}
	for range 2 { // the second request for a list keeps it for later ones
		expect.Equal(t, ask(children, "/many"), 2+4+50+1, "steps of a list that is put together")
	}
	expect.Equal(t, ask(children, "/many"), 2+4+1, "steps of a list that is kept")
	size, steps := tr.AnswerSize(children, 0, watch("/many"))
	expect.Equal(t, cost{size, steps}, cost{700, 0}, "a list that is kept")
	do(t, tr, c, jute.OpDelete, pathVersion("/many/001"), nil)
	expect.Equal(t, ask(children, "/many"), 2+4+49+1, "steps of a list that has changed")

	tr.SetLimits(0, 0, 0, 10_000)
	reads := make([]any, 0, 20)
	for range 10 {
		reads = append(reads, data, long)
	}
	size, steps = tr.AnswerSize(jute.OpMultiRead, 0, multi(reads...))
	expect.Equal(t, cost{size, steps}, cost{3 * 4100, 3 * 6}, "a multiRead of which the answer becomes too long")
}

// Copying the answers uses up the budget of a multiRead, too.
func TestCopiesOfAMultiReadHoldTheBudget(t *testing.T) {
	tr := tree.New()
	tr.SetLimits(0, 0, 0, 1<<30)
	do(t, tr, &tree.Change{}, jute.OpCreate, createBody("/n", strings.Repeat("x", 400*20_000), 0), nil)
	for n, want := range map[int]jute.ErrCode{7: jute.OK, 8: jute.BadArguments} {
		var body []byte
		for range n {
			body = jute.AppendMultiHeader(body, jute.OpGetData, false, -1)
			body = jute.AppendBool(jute.AppendString(body, "/n"), false)
		}
		out, steps, code := tr.AppendMultiRead([]byte("before"), nil, jute.AppendMultiHeader(body, jute.OpError, true, -1))
		expect.Equal(t, code, want, "%d reads: code", n)
		expect.That(t, steps <= bounds.MaxSteps,
			"%d reads: %v after %d steps, %d bytes: want steps <= bounds.MaxSteps",
			n, code, steps, len(out))
		expect.Equal(t, string(out[:6]), "before", "%d reads: string(out[:6])", n)
		expect.That(t, code == jute.OK || len(out) == 6,
			"%d reads: %v after %d steps, %d bytes: want code == jute.OK || len(out) == 6",
			n, code, steps, len(out))
	}
}

// The end of a session pays for every node and its data.
func TestEndOfASessionHasItsPrice(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Session: 7}
	do(t, tr, c, jute.OpCreate, createBody("/a", strings.Repeat("x", 1600), jute.FlagEphemeral), nil)
	do(t, tr, c, jute.OpCreate, createBody("/b", "", jute.FlagEphemeral), nil)
	c.Steps = 0
	tr.DropEphemerals(c, 7, func(path string, czxid int64) bool { return path == "/a" && czxid == 1 })
	expect.Equal(t, c.Steps, 10+10)
	tr.CloseSession(c, 7)
	expect.Equal(t, c.Steps, 10+10+10)
}

// BenchmarkSteps measures the real time of a step, which bounds.StepNanos estimates. A multi repeats one
// operation until its frame or its budget is full, and one client watches all nodes. With fails=true the last
// operation fails, so that the multi undoes all others.
func BenchmarkSteps(b *testing.B) {
	for _, op := range []jute.OpCode{jute.OpCheck, jute.OpSetData, jute.OpCreate, jute.OpDelete} {
		for _, path := range [][2]int{{1, 1}, {1, 60}, {1, 8000}, {10, 6}, {100, 8}, {1000, 1}} {
			for _, fails := range []bool{false, true} {
				name := fmt.Sprintf("%v/%d names of %d/fails=%v", op, path[0], path[1], fails)
				b.Run(name, func(b *testing.B) { benchSteps(b, op, path[0], path[1], fails) })
			}
		}
	}
}

func benchSteps(b *testing.B, op jute.OpCode, depth, length int, fails bool) {
	dir := strings.Repeat("/"+strings.Repeat("d", length), depth)
	path := func(i int) string { return fmt.Sprintf("%s/%d", dir, i) }
	ops := 1_000_000 / (len(dir) + 60)
	var request []byte
	for i := range ops {
		request = jute.AppendMultiHeader(request, op, false, -1)
		switch op {
		case jute.OpCreate:
			request = append(request, createBody(path(i), "", 0)...)
		case jute.OpSetData:
			request = append(request, setBody(path(i), "x")...)
		default:
			request = append(request, pathVersion(path(i))...)
		}
	}
	if fails {
		request = append(jute.AppendMultiHeader(request, jute.OpCheck, false, -1), pathVersion("/none")...)
	}
	request = jute.AppendMultiHeader(request, jute.OpError, true, -1)
	c := &tree.Change{}
	for steps := 0; b.Loop(); b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step") {
		b.StopTimer()
		tr := tree.New()
		for i := range depth {
			do(b, tr, c, jute.OpCreate, createBody(dir[:(i+1)*(length+1)], "", 0), nil)
		}
		for i := 0; op != jute.OpCreate && i < ops; i++ {
			do(b, tr, c, jute.OpCreate, createBody(path(i), "", 0), nil)
		}
		w := watches.New[int]()
		w.Add(1, "/", watches.Recursive)
		c = &tree.Change{Zxid: tr.Zxid() + 1, Session: 1}
		b.StartTimer()
		tr.Apply(c, jute.OpMulti, request, nil)
		for i := range c.Events {
			w.Fire(c.Events[i].Type, c.Events[i].Path, func(int) {})
		}
		steps += c.Steps
	}
}
