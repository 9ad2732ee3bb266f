package sim

import (
	"context"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/test/workload"
)

// cluster is three whole servers with clients.
type cluster struct {
	t     *testing.T
	rng   *rand.Rand
	net   *Network
	peers map[uint32]string
	disk  map[uint32]*raftfsm.Stores
	mu    sync.Mutex
	run   map[uint32]*server.Instance
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 2)), net: NewNetwork(rand.New(rand.NewPCG(seed, 3)), time.Millisecond),
		peers: map[uint32]string{1: "h1:2888", 2: "h2:2888", 3: "h3:2888"},
		disk:  map[uint32]*raftfsm.Stores{}, run: map[uint32]*server.Instance{}}
	var wg sync.WaitGroup
	for id := uint32(1); id <= 3; id++ {
		c.disk[id] = raftfsm.NewMemoryStores(false)
		wg.Go(func() { c.start(id) })
	}
	wg.Wait()
	for id := uint32(1); id <= 3; id++ {
		c.ready(id)
	}
	return c
}

func (c *cluster) start(id uint32) {
	i, err := server.Start(context.Background(), server.Options{
		ID: id, ClientAddr: fmt.Sprintf("h%d:2181", id), Listen: c.net.Listen, Logger: logger(id), MaxConnsPerAddr: -1,
		Raft: raftfsm.Options{Peers: c.peers, PeerInsecure: true, Stores: c.disk[id], Listen: c.net.Listen,
			Dial: c.net.Dialer(fmt.Sprintf("h%d", id)), SnapshotEntries: 3000,
			Fatal: func(err error) { c.t.Errorf("server %d stopped: %v", id, err) }},
	})
	if err != nil {
		c.t.Errorf("start %d: %v", id, err)
		return
	}
	c.mu.Lock()
	c.run[id] = i
	c.mu.Unlock()
}

func (c *cluster) server(id uint32) *server.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run[id]
}

func (c *cluster) ready(id uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if i := c.server(id); i == nil || i.Ready(ctx) != nil {
		c.t.Errorf("server %d does not serve", id)
	}
}

// crash ends a server as kill -9 would.
func (c *cluster) crash(id uint32) {
	c.mu.Lock()
	i := c.run[id]
	c.run[id] = nil
	c.mu.Unlock()
	if i != nil {
		c.net.Crash(fmt.Sprintf("h%d", id))
		i.Node().Abort()
		i.Close(context.Background())
	}
}

// dial connects a client's host to one of the servers.
func (c *cluster) dial(host string, rng *rand.Rand) func() (net.Conn, error) {
	d := c.net.Dialer(host)
	return func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return d(ctx, fmt.Sprintf("h%d:2181", 1+rng.IntN(3)))
	}
}

// TestSimHistoriesG1ToG9G12G14ToG17G19G22 runs random requests of many clients on whole servers,
// while servers crash and wires are cut, and judges what the clients saw.
func TestSimHistoriesG1ToG9G12G14ToG17G19G22(t *testing.T) {
	runs(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { simHistory(t, seed) })
	})
}

func simHistory(t *testing.T, seed uint64) {
	oldrand.Seed(int64(seed))
	c := newCluster(t, seed)
	var rec history.Recorder
	var conns atomic.Int64
	begin := time.Now()
	c.makeRoot(&rec, begin)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for k := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(100+k)))
		host := fmt.Sprintf("c%d", k)
		w := &workload.Client{Name: host, Dial: c.dial(host, rng), Timeout: time.Duration(4+rng.IntN(10)) * time.Second, Pause: 200 * time.Millisecond,
			Clock: func() time.Duration { return time.Since(begin) }, Record: &rec, Conns: func() int { return int(conns.Add(1)) }, Rand: rng}
		wg.Go(func() { w.Run(stop) })
	}
	faults := c.faults()
	c.net.Heal()
	for id := uint32(1); id <= 3; id++ {
		if c.server(id) == nil {
			c.start(id)
		}
		c.ready(id)
	}
	time.Sleep(20 * time.Second)
	close(stop)
	wg.Wait()
	time.Sleep(30 * time.Second)
	for id := uint32(1); id <= 3; id++ {
		if ok, why := c.server(id).Node().Serving(); !ok {
			t.Errorf("server %d does not serve 20 s after the last fault: %s", id, why)
		}
		c.server(id).Node().View(func(s *raftfsm.State) {
			rec.Add(history.Record{Digest: &history.Digest{Server: fmt.Sprint(id), Zxid: s.Zxid(), Sum: s.Digest()}})
			for _, d := range s.Digests() {
				rec.Add(history.Record{Digest: &history.Digest{Server: fmt.Sprint(id), Zxid: d.Zxid, Sum: d.Sum}})
			}
		})
	}
	for id := uint32(1); id <= 3; id++ {
		c.crash(id)
	}
	time.Sleep(time.Minute)
	records := rec.Records()
	answered, unknown, events, expired := 0, 0, 0, 0
	for _, r := range records {
		switch {
		case r.Op != nil && r.Op.Unknown:
			unknown++
		case r.Op != nil:
			answered++
		case r.Event != nil:
			events++
		case r.Expired != nil:
			expired++
		}
	}
	t.Logf("%d requests answered, %d unknown, %d events, %d sessions expired, %d faults", answered, unknown, events, expired, faults)
	if answered < 1000 || events < 50 {
		t.Errorf("too little happened to judge")
	}
	for _, v := range history.Check(records, history.Options{Root: workload.Root}) {
		t.Error(v)
	}
	if path := os.Getenv("ZLOCKD_SIM_HISTORY"); path != "" {
		var b []byte
		for i, r := range records {
			b = fmt.Appendf(b, "%d %v", i, r)
			if r.Op != nil {
				b = fmt.Appendf(b, " start %v end %v created %q steps %+v session %x children %q", r.Op.Start, r.Op.End, r.Op.Created, r.Op.Steps, r.Op.Session, r.Op.Children)
			}
			b = append(b, '\n')
		}
		os.WriteFile(path, b, 0o600)
	}
}

// makeRoot creates the node the clients work below, for the record.
func (c *cluster) makeRoot(rec *history.Recorder, begin time.Time) {
	nc, err := c.net.Dialer("c0")(context.Background(), "h1:2181")
	if err != nil {
		c.t.Fatal(err)
	}
	w := wire.New(nc)
	if err := w.Connect(wire.NewSession(30000)); err != nil {
		c.t.Fatal(err)
	}
	rec.Add(history.Record{Connect: &history.Connect{Client: "root", Session: w.Session.ID, New: true, End: time.Since(begin)}})
	start := time.Since(begin)
	if _, err := w.Create(workload.Root, nil, jute.FlagPersistent); err != nil {
		c.t.Fatal(err)
	}
	rec.Add(history.Record{Op: &history.Op{Client: "root", Session: w.Session.ID, Seq: 1, Start: start, End: time.Since(begin), Zxid: w.Zxid,
		Step: history.Step{Op: jute.OpCreate, Path: workload.Root, Created: workload.Root}}})
	w.CloseSession()
	w.Close()
}

// faults does harm for a run's length and returns how often.
func (c *cluster) faults() (count int) {
	hosts := []string{"h1", "h2", "h3"}
	for end := time.Now().Add(runLength); time.Now().Before(end); count++ {
		time.Sleep(time.Duration(c.rng.Int64N(int64(8 * time.Second))))
		id := uint32(1 + c.rng.IntN(3))
		host := fmt.Sprintf("h%d", id)
		switch c.rng.IntN(8) {
		case 0: // one way
			c.net.Cut(host, hosts[c.rng.IntN(3)])
		case 1: // one server from the others
			for _, other := range hosts {
				if other != host {
					c.net.Cut(host, other)
					c.net.Cut(other, host)
				}
			}
		case 2: // clients from a server
			for k := range 6 {
				if c.rng.IntN(2) == 0 {
					c.net.Cut(fmt.Sprintf("c%d", k), host)
					c.net.Cut(host, fmt.Sprintf("c%d", k))
				}
			}
		case 3, 4, 5:
			c.net.Heal()
		case 6, 7:
			c.crash(id)
			time.Sleep(time.Duration(c.rng.Int64N(int64(2 * time.Second))))
			c.start(id)
		}
	}
	return count
}
