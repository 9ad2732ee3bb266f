package conn

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// followed() returns options that add each followed request to `list`.
func followed(list *[]observe.Request) options.Options {
	return options.Options{Follow: func(r *observe.Request) { *list = append(*list, *r) }}
}

// A change is logged even if its client leaves before the outcome comes.
func TestLogsTellOfChangesWithoutAReader(t *testing.T) {
	var list []observe.Request
	_, c := quiet(t, followed(&list))
	for range 2 {
		c.out.Push(outbox.Pending{Op: jute.OpDelete, Followed: &observe.Request{Op: jute.OpDelete}})
	}
	c.out.Close(ends.Client)
	c.Done(&state.Outcome{Zxid: 5, Reply: []byte("record")}, state.New("test"))
	c.Done(&state.Outcome{Zxid: 6, Code: jute.NoNode}, state.New("test"))
	must.Equal(t, len(list), 2, "requests in the logs")
	expect.Equal(t, list[0].Op, jute.OpDelete)
	expect.Equal(t, list[0].Code, jute.OK, "code of the first")
	expect.Equal(t, list[0].Zxid, 5, "zxid of the first")
	expect.That(t, list[0].Logged > 0, "it was not applied: %+v", list[0])
	expect.Equal(t, list[1].Code, jute.NoNode, "code of the second")
}

// A reconfig is logged even if its outcome is unknown, or if its client leaves before the answer.
func TestLogsTellOfReconfigs(t *testing.T) {
	for _, known := range []bool{false, true} {
		var list []observe.Request
		o := followed(&list)
		var c *Conn
		o.Reconfigure = func(options.ReconfigRequest) (jute.ErrCode, bool) {
			c.out.Close(ends.Client)
			return jute.BadVersion, known
		}
		_, c = quiet(t, o)
		c.replica = still{state.New("test")}
		body := wire.Body{}.Str("").Str("1").Str("").Long(-1)
		expect.That(t, !c.handle(wire.AppendRequest(nil, 7, jute.OpReconfig, body)[4:]), "the connection goes on")
		must.Equal(t, len(list), 1, "known: %v, requests in the logs", known)
		expect.Equal(t, list[0].Op, jute.OpReconfig)
		expect.Equal(t, list[0].Xid, 7)
		expect.Equal(t, list[0].Unknown, !known, "its outcome is unknown")
		expect.Equal(t, list[0].Code == jute.BadVersion, known, "its code")
	}
}

// If a client must authenticate first, its read is refused, but is logged and counted as a read. The client's
// authentication is counted only once.
func TestReadThatIsTurnedAwayIsLogged(t *testing.T) {
	var list []observe.Request
	o := followed(&list)
	o.RequireAuth = []string{"sasl"}
	s, c := quiet(t, o)
	c.replica = still{state.New("test")}
	must.That(t, c.handle(wire.AppendRequest(nil, jute.XidAuth, jute.OpAuth, wire.Auth("digest", "a:b"))[4:]),
		"the identity is refused")
	expect.That(t, !c.handle(wire.AppendRequest(nil, 3, jute.OpGetData, wire.PathWatch("/a", false))[4:]),
		"the read is answered")
	must.Equal(t, len(list), 2, "requests in the logs")
	expect.Equal(t, list[0].Op, jute.OpAuth)
	expect.Equal(t, list[0].Code, jute.OK, "code of the login")
	expect.Equal(t, list[1].Op, jute.OpGetData)
	expect.Equal(t, list[1].Path(), "/a")
	expect.Equal(t, list[1].Code, jute.SessionClosedRequireAuth, "code of the read")
	requests, _ := c.out.Stat.Total()
	expect.Equal(t, requests, 2, "requests of the connection")
	expect.Equal(t, s.Metrics.PacketsReceived.Load(), 2, "requests of the server")
}

// Each request that reads adds one latency to the metrics, whatever its operation.
func TestEachReadHasOneLatency(t *testing.T) {
	for op, body := range map[jute.OpCode]wire.Body{
		jute.OpGetData:       wire.PathWatch("/", false),
		jute.OpAddWatch:      wire.PathInt("/", 0),
		jute.OpRemoveWatches: wire.PathInt("/none", 3),
		jute.OpCheckWatches:  wire.PathInt("/none", 3),
	} {
		s, c := quiet(t, options.Options{})
		c.replica = still{state.New("test")}
		must.That(t, c.handle(wire.AppendRequest(nil, 3, op, body)[4:]), "%v ends the connection", op)
		now := time.Now()
		expect.Equal(t, s.Metrics.Requests.Value(now, 1).Count, 1, "%v: latencies of requests", op)
		expect.Equal(t, s.Metrics.ReadLatency.Value(now, 1).Count, 1, "%v: latencies of reads", op)
		expect.Equal(t, c.out.Look().Frames, 1, "%v: answers", op)
	}
}
