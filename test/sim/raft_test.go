//go:debug randseednop=0
package sim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	oldrand "math/rand"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/tree"
)

var (
	seedFlag  = flag.Uint64("sim.seed", 0, "seed of the first run; 0: from the clock")
	hoursFlag = flag.Float64("sim.hours", 0.1, "simulated hours in all")

	probesFlag = flag.Bool("sim.probes", true, "end each run with probes")
)

// runLength returns the simulated time of one seed.
func runLength() time.Duration {
	if testing.Short() {
		return time.Minute
	}
	return 6 * time.Minute
}

// runs() calls f() with one seed after the other until the simulated time is used up.
func runs(t *testing.T, f func(t *testing.T, seed uint64)) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	hours := *hoursFlag
	if testing.Short() {
		hours = min(hours, runLength().Hours())
	}
	n := seedsFor(seed, hours)
	if apart(t, seed, n) {
		return
	}
	for i := range n {
		s := seed + uint64(i)
		if !t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			exactly(t, s)
			f(t, s)
		}) {
			return
		}
	}
}

// seedsFor returns how many seeds it takes to simulate the given number of hours.
func seedsFor(first uint64, hours float64) (n int) {
	if !*longFlag {
		return max(1, int(hours*float64(time.Hour)/float64(runLength())+0.5))
	}
	for n = 0; n == 0 || hours > 0; n++ {
		hours -= dayLength(first + uint64(n)).Hours()
	}
	return n
}

func logger(id uint32) *slog.Logger {
	if os.Getenv("ZLOCKD_TEST_LOG") == "" {
		if race.Enabled { // format the lines, so that the detector sees the reads of their values
			return slog.New(slog.NewTextHandler(io.Discard, nil))
		}
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("server",
		id)
}

// quietObserver lets a node run without a server above it.
type quietObserver struct{}

func (quietObserver) Events(int64, []tree.Event)                  {}
func (quietObserver) SessionEnded(*state.Ending)                  {}
func (quietObserver) SessionMoved(int64, uint32)                  {}
func (quietObserver) Reset()                                      {}
func (quietObserver) Applied()                                    {}
func (quietObserver) Heard(b []state.Touch, _ bool) []state.Touch { return b }
func (quietObserver) Serving(bool)                                {}
func (quietObserver) ReadOnly(bool)                               {}

// nodes are three servers without connections of clients. The tests propose requests directly. The tests show
// that the log, the streams and leadership keep their promises.
type nodes struct {
	t     *testing.T
	net   *Network
	peers map[uint32]string
	disk  map[uint32]*serverDisk
	above map[uint32]raftfsm.Observer // the observers of some nodes; the others have a quietObserver
	mu    sync.Mutex
	run   map[uint32]*raftfsm.Node

	heartbeat time.Duration // 0: the default
}

// newNodes starts three nodes.
func newNodes(t *testing.T, seed uint64, above map[uint32]raftfsm.Observer) *nodes {
	c := &nodes{t: t, net: NewNetwork(rand.New(rand.NewPCG(seed, 3)), time.Millisecond),
		peers: map[uint32]string{1: "h1:2888", 2: "h2:2888", 3: "h3:2888"},
		disk:  map[uint32]*serverDisk{}, above: above, run: map[uint32]*raftfsm.Node{}}
	var wg sync.WaitGroup
	for id := uint32(1); id <= 3; id++ {
		c.disk[id] = newServerDisk(rand.New(rand.NewPCG(seed, uint64(10+id))))
	}
	for id := uint32(1); id <= 3; id++ {
		wg.Go(func() { c.start(id) })
	}
	wg.Wait()
	return c
}

func (c *nodes) start(id uint32) {
	host := fmt.Sprintf("h%d", id)
	var above raftfsm.Observer = quietObserver{}
	if o, ok := c.above[id]; ok {
		above = o
	}
	n, err := raftfsm.Start(context.Background(), raftfsm.Options{
		ID: id, Peers: c.peers, PeerInsecure: true, DataDir: dataDir, Files: c.disk[id].Files(), Observer: above,
		Listen: c.net.Listen, Dial: c.net.Dialer(host), Logger: logger(id), SnapshotEntries: 2000,
		TrailingLogs:     10240,
		HeartbeatTimeout: c.heartbeat,
		Fatal:            func(err error) { c.t.Errorf("server %d stopped: %v", id, err) },
	})
	if err != nil {
		c.t.Errorf("start %d: %v", id, err)
		return
	}
	c.mu.Lock()
	c.run[id] = n
	c.mu.Unlock()
}

func (c *nodes) node(id uint32) *raftfsm.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run[id]
}

func (c *nodes) crash(id uint32) { c.end(id, (*serverDisk).Crash) }

func (c *nodes) end(id uint32, end func(*serverDisk)) {
	c.mu.Lock()
	n := c.run[id]
	c.run[id] = nil
	c.mu.Unlock()
	if n != nil {
		c.net.Crash(fmt.Sprintf("h%d", id))
		end(c.disk[id])
		n.Abort()
	}
}

type done struct{ ch chan state.Outcome }

func (d done) Done(o *state.Outcome, _ *state.State) {
	out := *o
	out.Reply = append([]byte(nil), o.Reply...)
	d.ch <- out
}

// ask() proposes a request and waits for its outcome. `ok` is false if the outcome is unknown.
func ask(n *raftfsm.Node, r state.Request) (o state.Outcome, sent, ok bool) {
	d := done{make(chan state.Outcome, 1)}
	if n == nil || n.Propose(r, d) != nil {
		return o, false, false
	}
	o = <-d.ch
	return o, true, !o.Unknown
}

// TestSimStreamsApplyOnceG3R8 proposes sequential creates at every server while servers crash and wires are
// cut. Each answer must name a different node, and all named nodes must exist at the end. There must not be
// more nodes than answered creates and creates with an unknown outcome together.
func TestSimStreamsApplyOnceG3R8(t *testing.T) {
	runs(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { streamsApplyOnce(t, seed) })
	})
}

func streamsApplyOnce(t *testing.T, seed uint64) {
	oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
	rng := rand.New(rand.NewPCG(seed, 2))
	c := newNodes(t, seed, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]int{}
	open := 0
	stop := make(chan struct{})
	for id := uint32(1); id <= 3; id++ {
		for w := range 2 {
			wg.Go(func() { c.writer(id, w, stop, &mu, acked, &open) })
		}
	}
	faults := c.faults(rng)
	close(stop)
	c.net.Heal()
	for id := uint32(1); id <= 3; id++ {
		if c.node(id) == nil {
			c.start(id)
		}
	}
	wg.Wait()
	time.Sleep(20 * time.Second)
	c.check(acked, open)
	t.Logf("%d writes answered, %d open, %d faults", len(acked), open, faults)
	for id := uint32(1); id <= 3; id++ {
		c.crash(id)
	}
	time.Sleep(time.Minute)
}

// check() compares the content of the servers with the answers, some time after the last fault.
func (c *nodes) check(acked map[string]int, open int) {
	t := c.t
	t.Helper()
	var digest [4]uint64
	for id := uint32(1); id <= 3; id++ {
		if ok, why := c.node(id).Serving(); !ok {
			t.Errorf("server %d does not serve 20 s after the last fault: %s", id, why)
		}
		c.node(id).View(func(s *state.State) {
			digest[id] = s.Digest()
			nodes := 0
			for _, name := range s.Tree().Children("/") {
				if strings.HasPrefix(name, "w-") {
					nodes++
				}
			}
			if nodes < len(acked) || nodes > len(acked)+open {
				t.Errorf("server %d: %d nodes, %d answered, %d open", id, nodes, len(acked), open)
			}
			for path, times := range acked {
				_, ok := s.Tree().Get(path)
				expect.That(t, ok, "server %d: %s answered %d times, exists: %v", id, path, times, ok)
				expect.Equal(t, times, 1, "server %d: times", id)
			}
		})
	}
	expect.Equal(t, digest[1], digest[2], "digests differ: digest")
	expect.Equal(t, digest[2], digest[3], "digests differ: digest")
}

func (c *nodes) writer(id uint32, _ int, stop chan struct{}, mu *sync.Mutex, acked map[string]int,
	open *int) {
	var session state.Outcome
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		n := c.node(id)
		if session.Session.ID == 0 {
			body := state.SessionBody{Timeout: 3600_000, Owner: id, Addr: "10.0.0.1"}
			o, _, ok := ask(n, state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
			if !ok || c.node(id) != n { // no client gets an answer from a server that has crashed
				continue
			}
			session = o
		}
		b := jute.AppendString(nil, "/w-")
		b = jute.AppendBuffer(b, nil)
		b = jute.AppendACL(b, jute.WorldAnyone)
		b = jute.AppendInt(b, jute.FlagPersistentSequential)
		o, sent, ok := ask(n, state.Request{Session: session.Session.ID, Gen: session.Session.Gen,
			Op: jute.OpCreate, Body: b})
		ok = ok && c.node(id) == n
		mu.Lock()
		switch {
		case ok && o.Code == jute.OK && !o.Refused:
			d := jute.NewDecoder(o.Reply)
			path, _ := d.String()
			acked[path]++
		case ok:
			c.t.Errorf("write at %d: %+v", id, o)
		case sent:
			*open++
		}
		mu.Unlock()
	}
}

// faults() cuts wires and crashes servers for a run's length, and returns the number of faults.
func (c *nodes) faults(rng *rand.Rand) (count int) {
	end := time.Now().Add(runLength())
	for time.Now().Before(end) {
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		a, b := uint32(rng.IntN(3)+1), uint32(rng.IntN(3)+1)
		ha, hb := fmt.Sprintf("h%d", a), fmt.Sprintf("h%d", b)
		count++
		switch rng.IntN(6) {
		case 0:
			c.net.Cut(ha, hb)
		case 1:
			c.net.Cut(ha, hb)
			c.net.Cut(hb, ha)
		case 2, 3:
			c.net.Heal()
		case 4:
			c.crash(a)
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
			c.start(a)
		case 5:
			for id := uint32(1); id <= 3; id++ {
				if other := fmt.Sprintf("h%d", id); id != a {
					c.net.Cut(ha, other)
					c.net.Cut(other, ha)
				}
			}
		}
	}
	return count
}
