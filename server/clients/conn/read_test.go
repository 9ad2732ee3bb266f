package conn

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// stateWith returns a state with these nodes: /few has 10 children, /many has 1000 children with names of 100
// bytes, /data has 40,000 bytes, and /short has a few.
func stateWith(t testing.TB) *state.State {
	st := state.New("test")
	c := &tree.Change{}
	put := func(path string, data int) {
		c.Zxid++
		_, code, _ := st.Tree().Apply(c, jute.OpCreate, wire.Create(path, make([]byte, data), jute.WorldAnyone, 0), nil)
		must.Equal(t, code, jute.OK, "%s", path)
	}
	for path, data := range map[string]int{"/few": 0, "/many": 0, "/data": 40_000, "/short": 10, "/bound": parkedAnswer,
		"/beyond": parkedAnswer + 1} {
		put(path, data)
	}
	for i := range 10 {
		put(fmt.Sprint("/few/", i), 0)
	}
	for i := range 1000 {
		put(fmt.Sprintf("/many/%0100d", i), 0)
	}
	return st
}

func reads(n int, op jute.OpCode, path string) wire.Body {
	return wire.Multi(slices.Repeat([]wire.Op{{Type: op, Body: wire.PathWatch(path, false)}}, n)...)
}

// A read whose reply is long, or takes long to compute, first waits for memory.
func TestLongAnswersAskForTheirMemory(t *testing.T) {
	st := stateWith(t)
	const many = 1000 * 104
	large := strings.Repeat("/x", 400) // the lookup takes more than 100 steps, and the path does not exist
	cost := func(op jute.OpCode, body []byte) int64 {
		_, steps := st.Tree().AnswerSize(op, 0, body)
		return int64(steps)
	}
	for _, x := range []struct {
		name     string
		op       jute.OpCode
		body     wire.Body
		reserved int
		long     bool
		refusal  jute.ErrCode
		size     int // bytes of the answer, if it is long
		counts   bool
	}{
		{"a few names", jute.OpGetChildren, wire.PathWatch("/few", false), 0, false, jute.OK, 0, true},
		{"many names", jute.OpGetChildren, wire.PathWatch("/many", false), 0, true, jute.OK, many, false},
		{"many names and a stat", jute.OpGetChildren2, wire.PathWatch("/many", false), 0, true, jute.OK, many, false},
		{"many names, of which there is room for all but one byte", jute.OpGetChildren, wire.PathWatch("/many", false),
			many - 1, true, jute.OK, many, false},
		{"many names, for which there is room", jute.OpGetChildren, wire.PathWatch("/many", false), many, false, jute.OK, 0,
			true},
		{"data, which are there", jute.OpGetData, wire.PathWatch("/data", false), 0, false, jute.OK, 0, false},
		{"a few reads", jute.OpMultiRead, reads(2, jute.OpGetData, "/short"), 0, false, jute.OK, 0, true},
		{"reads of much", jute.OpMultiRead, reads(2, jute.OpGetData, "/data"), 0, true, jute.OK, 2 * 40_100, true},
		{"reads of much, for which there is room", jute.OpMultiRead, reads(2, jute.OpGetData, "/data"), 1, false, jute.OK, 0,
			false},
		{"reads that take long", jute.OpMultiRead, reads(200, jute.OpGetData, large), 0, true, jute.OK, 0, true},
		{"reads that take too long", jute.OpMultiRead, reads(2000, jute.OpGetData, large), 0, false, jute.BadArguments, 0,
			true},
		{"reads of too much", jute.OpMultiRead, reads(500, jute.OpGetData, "/data"), 0, false, jute.Throttled, 0, true},
		{"an ACL", jute.OpGetACL, wire.Path("/few"), 0, false, jute.OK, 0, true},
		{"ephemeral nodes", jute.OpGetEphemerals, wire.Path("/"), 0, false, jute.OK, 0, true},
	} {
		_, c := quiet(t, options.Options{})
		c.out.Pretend(false, false, 0, x.reserved)
		long, refusal := c.longAnswer(st, x.op, x.body)
		expect.Equal(t, long, x.long, "%s: long", x.name)
		expect.Equal(t, refusal, x.refusal, "%s: refusal", x.name)
		steps := cost(x.op, x.body)
		need, building, counted := 0, int64(0), int64(0)
		if x.long {
			need, building = x.size+x.size/16+4096, steps
		}
		if x.counts {
			counted = steps
		}
		expect.Equal(t, c.reads.need, need, "%s: c.reads.need", x.name)
		expect.Equal(t, c.reads.building, building, "%s: c.reads.building", x.name)
		expect.Equal(t, c.reads.cost, counted, "%s: c.reads.cost", x.name)
	}
}

// A read that follows requests of its connection is parked until they have outcomes, if the read and its
// answer are short and few requests are pending.
func TestReadsParkUpToTheirBounds(t *testing.T) {
	st := stateWith(t)
	frame := func(op jute.OpCode, path string) []byte {
		return wire.AppendRequest(nil, 7, op, wire.PathWatch(path, false))[4:]
	}
	name := func(frame int) string { return strings.Repeat("n", frame-inbox.HeaderSize-5) }
	for _, x := range []struct {
		name         string
		pending      int
		long         bool // a pending request may change the length of answers
		frame        []byte
		parked, wait bool
	}{
		{"alone", 0, false, frame(jute.OpGetData, "/short"), false, false},
		{"behind one", 1, false, frame(jute.OpGetData, "/short"), true, false},
		{"behind as many as may", 4, false, frame(jute.OpExists, "/short"), true, false},
		{"behind one more", 5, false, frame(jute.OpExists, "/short"), false, true},
		{"behind a long one", 1, true, frame(jute.OpGetData, "/short"), false, true},
		{"the longest frame", 1, false, frame(jute.OpGetData, name(parkedFrame)), true, false},
		{"a longer frame", 1, false, frame(jute.OpGetData, name(parkedFrame+1)), false, true},
		{"the longest answer", 1, false, frame(jute.OpGetData, "/bound"), true, false},
		{"a longer answer", 1, false, frame(jute.OpGetData, "/beyond"), false, true},
		{"names", 1, false, frame(jute.OpGetChildren, "/few"), true, false},
		{"names and a stat", 1, false, frame(jute.OpGetChildren2, "/few"), true, false},
		{"many names", 1, false, frame(jute.OpGetChildren, "/many"), false, true},
		{"an ACL", 1, false, frame(jute.OpGetACL, "/few"), true, false},
		{"ephemeral nodes", 1, false, frame(jute.OpGetEphemerals, "/"), false, true},
		{"a multiRead", 1, false, frame(jute.OpMultiRead, "/"), false, true},
		{"a watch", 1, false, frame(jute.OpAddWatch, "/"), false, true},
	} {
		s, c := quiet(t, options.Options{MaxPending: 10})
		for i := range x.pending {
			c.out.Push(outbox.Pending{Xid: int32(i), Long: x.long})
		}
		was := slices.Clone(x.frame)
		parked, wait := c.park(st, x.frame)
		clear(x.frame) // the caller reuses the buffer
		expect.Equal(t, parked, x.parked, "%s: parked", x.name)
		expect.Equal(t, wait, x.wait, "%s: wait", x.name)
		n := c.out.Pending() - x.pending
		requests, _ := c.out.Stat.Total()
		if !x.parked {
			expect.Equal(t, n, 0, "%s: n", x.name)
			expect.Equal(t, requests, 0, "%s: requests", x.name)
			continue
		}
		p := c.out.Look().Waiting[x.pending]
		_, op, _ := inbox.Header(was)
		expect.Equal(t, n, 1, "%s: n", x.name)
		expect.Equal(t, p.Xid, 7, "%s: p.Xid", x.name)
		expect.Equal(t, p.Op, op, "%s: p.op", x.name)
		expect.List(t, p.Parked, was, "%s: p.Parked", x.name)
		expect.Equal(t, requests, 1, "%s: requests", x.name)
		expect.Equal(t, s.Metrics.PacketsReceived.Load(), 1,
			"%s: s.metrics.PacketsReceived.Load()", x.name)
	}
}

// Several reads are answered under one hold of the state lock. The hold ends when these reads have cost much,
// or when many bytes wait to be written.
func TestReadsEndTheirHoldOfTheLock(t *testing.T) {
	st := stateWith(t)
	deep := strings.Repeat("/x", 1000)
	// The estimate of the first read in each run is charged in advance.
	ahead := int(request.ReadCost(wire.PathWatch(deep, false)))
	atOnce := (runSteps+ahead)/bounds.ReadSteps(deep, make([]jute.ID, 1)) + 1
	for _, x := range []struct {
		name string
		n    int
		op   jute.OpCode
		path string
		want int // number of holds of the lock
	}{
		{"short ones", 60, jute.OpGetData, "/short", 1},
		{"that cost much", 60, jute.OpExists, deep, (60 + atOnce - 1) / atOnce},
		{"of much data", 10, jute.OpGetData, "/data", 5},
		{"of long lists", 3, jute.OpGetChildren, "/many", 6}, // each list first asks for its memory
	} {
		s, c := quiet(t, options.Options{})
		client, server := net.Pipe()
		defer client.Close()
		go io.Copy(io.Discard, client)
		c.out.NC = server
		g := &glances{Replica: still{st}}
		c.replica = g
		for xid := range int32(x.n) {
			c.reader.in.Put(wire.AppendRequest(nil, xid, x.op, wire.PathWatch(x.path, false)))
		}
		must.Equal(t, c.frames(), ends.None, "%s", x.name)
		expect.Equal(t, g.n.Load(), int64(x.want), "%s: holds of the lock", x.name)
		expect.Equal(t, s.Metrics.PacketsReceived.Load(), int64(x.n), "%s: requests counted", x.name)
		c.out.Close(ends.Moved)
	}
}

// A read pays its estimate in advance, and the rest of its cost after its answer.
func TestStepsOfARead(t *testing.T) {
	_, c := quiet(t, options.Options{})
	c.reads.cost = 100
	expect.That(t, c.foresee(30), "the connection is open")
	expect.Equal(t, c.reads.cost, 70,
		"%d and %d steps: c.reads.cost", c.reads.cost, c.from.Account.Owed())
	expect.Equal(t, c.from.Account.Owed(), 30,
		"%d and %d steps: c.from.Account.Owed()", c.reads.cost, c.from.Account.Owed())
	c.charge(-5)
	expect.Equal(t, c.from.Account.Owed(), 25)
}

// Up to maxRun reads are answered together.
func TestReadsAreAnsweredTogether(t *testing.T) {
	for _, x := range []struct {
		name  string
		n     int
		op    jute.OpCode
		body  wire.Body
		views int
	}{
		{"one", 1, jute.OpExists, wire.PathWatch("/", false), 1},
		{"as many as may", maxRun, jute.OpExists, wire.PathWatch("/", false), 1},
		{"one more", maxRun + 1, jute.OpExists, wire.PathWatch("/", false), 2},
		{"many", 10 * maxRun, jute.OpGetData, wire.PathWatch("/", false), 10},
	} {
		s, c := quiet(t, options.Options{})
		g := &glances{Replica: still{state.New("test")}}
		c.replica = g
		for xid := range int32(x.n) {
			c.reader.in.Put(wire.AppendRequest(nil, xid, x.op, x.body))
		}
		expect.Equal(t, c.frames(), ends.None, "%s", x.name)
		expect.Equal(t, g.n.Load(), int64(x.views), "%s: holds of the lock", x.name)
		expect.Equal(t, c.reader.in.Len(), 0, "%s: bytes that no read took", x.name)
		expect.Equal(t, s.Metrics.PacketsReceived.Load(), int64(x.n),
			"%s: s.metrics.PacketsReceived.Load()", x.name)
		expect.Equal(t, c.reads.cost, 0, "%s: c.reads.cost", x.name)
	}
}

// The answer to getEphemerals may be short, but the server visits all nodes of the session for it. A client
// that asks again and again must not delay the log.
func TestAnswersThatTakeLongAreGivenOneByOne(t *testing.T) {
	const requests = 50
	for _, tt := range []struct {
		op   jute.OpCode
		many bool
	}{{jute.OpGetEphemerals, true}, {jute.OpGetAllChildrenNumber, false}} {
		s := quietly(t, options.Options{Logger: slog.New(slog.DiscardHandler)})
		g := &glances{Replica: still{state.New("test")}}
		s.Entrance.UseMeanwhile(g)
		s.Entrance.SetReadOnly(true)
		c := newConn(s, &net.TCPConn{}, nil)
		c.proof.IDs.Store(identity.Unproved("127.0.0.1", false))
		c.replica = g
		for xid := range int32(requests) {
			c.reader.in.Put(wire.AppendRequest(nil, xid, tt.op, wire.Path("/none")))
		}
		c.frames()
		n := g.n.Load()
		expect.Equal(t, n == requests, tt.many, "%v: the state was looked at %d times", tt.op, n)
	}
}
