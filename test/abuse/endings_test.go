//go:build linux

package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/view"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// ending is an attack by sessions that end again and again while others, from the same address, watch.
type ending struct {
	name          string
	owners, nodes int // sessions that end, and the ephemeral nodes of each
	watchers      int
	each          bool // each watcher watches each node; else it watches all recursively
	deaf          bool // the watchers do not read
	siblings      int  // nodes beside those that end, in the same directory
}

// The end of a session has no budget, and takes about 1 µs for each node. With these sizes its hold of the
// state lock must stay within longestHold all the same.
var endings = []ending{
	{name: "15 sessions with 2,000 nodes", owners: 15, nodes: 2000},
	{name: "5,000 nodes and 20 recursive watchers", owners: 2, nodes: 5000, watchers: 20},
	{name: "2,500 nodes and 40 recursive watchers", owners: 2, nodes: 2500, watchers: 40},
	{name: "5,000 nodes and 20 recursive watchers that do not read", owners: 2, nodes: 5000, watchers: 20,
		deaf: true},
	{name: "1,000 nodes, each watched by 20", owners: 2, nodes: 1000, watchers: 20, each: true},
	{name: "5,000 of 50,000 nodes of one directory", owners: 2, nodes: 5000, watchers: 20, siblings: 45_000},
}

// run() makes the attack on a server of its own, beside an innocent client and the operators' views.
func (e *ending) run(t *testing.T) (m measured) {
	c := newCore(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &attacker{ctx: ctx}
	to := target{Client: c.addr}
	must.OK(t, a.session(to, func(w *wire.Conn) error {
		if _, err := w.Create("/ends", nil, 0); err != nil {
			return err
		}
		return many(w, e.siblings, func(k int) []byte {
			return wire.Create(fmt.Sprint("/ends/beside", k), nil, jute.WorldAnyone, 0)
		})
	}))
	before := heap()
	c.take()
	var wg sync.WaitGroup
	again := func(n int, f func(w *wire.Conn, i int) error) {
		wg.Go(func() { a.sessions(n, []target{to}, f) })
	}
	again(e.watchers, e.watch)
	var ended atomic.Int64
	again(e.owners, func(w *wire.Conn, i int) error {
		if err := many(w, e.nodes, func(k int) []byte {
			return wire.Create(e.node(i, k), nil, jute.WorldAnyone, jute.FlagEphemeral)
		}); err != nil {
			return err
		}
		f, err := w.Call(jute.OpCloseSession, nil)
		if err == nil && f.Code == jute.OK {
			ended.Add(1)
		}
		return errors.Join(err, errEnough)
	})
	wg.Go(func() { m.locks, m.slowest = lockAndUnlock(ctx, c) })
	wg.Go(func() { c.look(ctx) })
	defer func() { cancel(); wg.Wait() }() // also where the test fails: the next attack measures the heap
	began := time.Now()
	for ended.Load() < 3 || time.Since(began) < *burst {
		must.That(t, time.Since(began) < 5*time.Minute, "%d sessions have ended", ended.Load())
		m.memory = max(m.memory, heap()-before)
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	m.lasted, m.holds = time.Since(began), c.take()
	return m
}

func (e *ending) node(owner, k int) string { return fmt.Sprintf("/ends/server-%d-%06d", owner, k) }

// watch() sets the watches of one watcher, and keeps its connection until the attack ends.
func (e *ending) watch(w *wire.Conn, _ int) error {
	if e.each {
		return e.watchEach(w)
	}
	if err := w.AddWatch("/ends", jute.AddWatchRecursive); err != nil {
		return err
	}
	if e.deaf {
		return hold(w)
	}
	w.SetReadDeadline(time.Time{})
	_, err := io.Copy(io.Discard, w)
	return err
}

// watchEach() sets a watch on each node, and sets all again every 200 ms, because some have fired.
func (e *ending) watchEach(w *wire.Conn) error {
	var paths []string
	for i := range e.owners {
		for k := range e.nodes {
			paths = append(paths, e.node(i, k))
		}
	}
	return flood(w, func(k int) []byte {
		if k > 0 {
			time.Sleep(200 * time.Millisecond)
		}
		return request(k, jute.OpSetWatches, wire.SetWatches(1<<60, paths, nil, nil))
	})
}

// heap() returns the bytes of live memory, with those that the garbage collector has not freed yet.
func heap() int64 {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc)
}

// operators is what the operators' views read of a core.
type operators struct {
	c *core
	*clients.Server
	*observe.Clients
}

var _ view.Source = operators{}

func (o operators) View(f func(*state.State)) bool { o.c.View(f); return true }

func (o operators) Status(need report.Need) *report.Status {
	st := &report.Status{}
	o.Fill(st, need)
	return st
}

func (operators) Do(context.Context, state.Request) (o state.Outcome, err error) {
	return o, errors.ErrUnsupported
}
func (operators) HandOver(context.Context) error { return errors.ErrUnsupported }
func (operators) TakeSnapshot() error            { return errors.ErrUnsupported }
func (operators) Members(context.Context) (*status.Members, error) {
	return nil, errors.ErrUnsupported
}

// look() asks for the operators' views of the state, as a monitoring system and an open page do, until ctx
// ends. So their holds of the state lock are measured too.
func (c *core) look(ctx context.Context) {
	v := view.New(view.Options{Source: operators{c, c.srv, c.srv.Observed()}})
	defer v.Close()
	pages := http.NewServeMux()
	for pattern, h := range v.Pages() {
		pages.Handle(pattern, h)
	}
	for ctx.Err() == nil {
		for _, page := range []string{"/", "/locks", "/wait-graph", "/sessions", "/sessions/ended", "/top",
			"/tree/ends"} {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, page, nil)
			r.RemoteAddr = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 67), Port: 1}).String()
			pages.ServeHTTP(httptest.NewRecorder(), r)
		}
		st := &report.Status{}
		c.srv.Fill(st, report.NeedMetrics|report.NeedSessions)
		v.Measure(st)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestEndsOfSessions checks the limits of docs/limits.md for one address while its sessions end. It always
// checks memory, and times only with -abuse.strict. Times count as in TestRandomAttacks.
func TestEndsOfSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	slower := slower(t)
	most := time.Duration(slower * float64(longestHold))
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			late := true
			for try := 0; try < 3 && late; try++ {
				m := e.run(t)
				t.Logf("%v", &m)
				if m.memory > mostMemory {
					t.Errorf("too much memory: %v", &m)
				}
				late = *strict && (m.longest > most || m.slowest > mostHandOff || m.locks == 0)
			}
			if late {
				t.Errorf("beyond the bounds three times: %v for a hold of the lock, or %v for a lock", most, mostHandOff)
			}
		})
	}
}
