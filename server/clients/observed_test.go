package clients

import (
	"fmt"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/wire"
)

// A log of requests gets each request once, with its answer, in the order of the answers.
func TestFollowGetsEachRequestWithItsAnswer(t *testing.T) {
	var mu sync.Mutex
	var got []string
	r := newRig(t, Options{Follow: func(q *observe.Request) {
		mu.Lock()
		defer mu.Unlock()
		if q.Arrived > q.Begun || q.Begun > q.Answered || q.Addr != "127.0.0.1" || len(q.IDs) == 0 {
			t.Errorf("%+v", q)
		}
		if log := classOf(q.Op) == writeOp || q.Op == state.OpCreateSession; log != (q.Logged > 0) ||
			log && (q.Logged < q.Begun || q.Logged > q.Answered) {
			t.Errorf("%v: logged at %v, begun %v, answered %v", q.Op, q.Logged, q.Begun, q.Answered)
		}
		got = append(got, fmt.Sprint(q.Op, " ", q.Path(), " ", int32(q.Code), " ", q.Session != 0, " ", q.Zxid > 0))
	}})
	c := r.client()
	create(t, c, "/a", "", 0)
	call(t, c, jute.NodeExists, jute.OpCreate, wire.Create("/a", nil, jute.WorldAnyone, 0))
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
	call(t, c, jute.NoNode, jute.OpGetChildren, wire.PathWatch("/b", false))
	call(t, c, jute.OK, jute.OpWhoAmI, nil)
	mu.Lock()
	defer mu.Unlock()
	want := []string{}
	for _, w := range []struct {
		op   jute.OpCode
		path string
		code jute.ErrCode
	}{{state.OpCreateSession, "", 0}, {jute.OpCreate, "/a", 0}, {jute.OpCreate, "/a", jute.NodeExists},
		{jute.OpGetData, "/a", 0}, {jute.OpGetChildren, "/b", jute.NoNode}, {jute.OpWhoAmI, "", 0}} {
		want = append(want, fmt.Sprint(w.op, " ", w.path, " ", int32(w.code), " true true"))
	}
	expect.List(t, got, want)
}

// What a client asked for is known when its connection has ended: some connect for each
// request.
func TestClientsThatConnectForEachRequestAreCounted(t *testing.T) {
	r := newRig(t, Options{})
	const connections = 20
	for range connections {
		c := r.client()
		call(t, c, jute.OK, jute.OpExists, wire.PathWatch("/", false))
		c.Close()
	}
	eventually(t, "connections gone", func() bool { return r.srv.Figures().Conns == 0 })
	if n := r.srv.Observed.GoneClients()["127.0.0.1"]; n.Requests < connections || n.Bytes < 100*connections {
		t.Errorf("%+v of %d connections", n, connections)
	}
}
