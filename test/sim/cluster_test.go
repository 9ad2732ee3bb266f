package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server"
)

// settings vary from seed to seed, so that no default can hide a bug.
type settings struct {
	heartbeat time.Duration
	latency   time.Duration // of the network
	snapshot  int64         // requests between two snapshots
	trailing  uint64        // log entries kept before a snapshot
	linear    bool          // linearizable reads
	bulky     bool          // large values and identities; disks and wires are too small for them
	grid      time.Duration // messages arrive and writes to disks end at multiples of this time; 0: at any time
	tickets   bool          // the servers have ports for tickets
}

func drawSettings(rng *rand.Rand) settings {
	pick := func(list ...time.Duration) time.Duration { return list[rng.IntN(len(list))] }
	return settings{
		heartbeat: pick(time.Second, time.Second, 300*time.Millisecond, 2*time.Second),
		latency:   pick(time.Millisecond, time.Millisecond, 10*time.Millisecond),
		snapshot:  300 + rng.Int64N(3000),
		trailing:  []uint64{256, 256, 10_240}[rng.IntN(3)],
		linear:    rng.IntN(4) == 0,
		grid:      pick(0, time.Millisecond/2, time.Millisecond),
	}
}

// cluster is three whole servers, with room for a fourth, and their hosts.
type cluster struct {
	t   *testing.T
	set settings
	rng *rand.Rand // random numbers for the faults
	net *Network

	mu    sync.Mutex
	disks map[uint32]*serverDisk
	run   map[uint32]*running
	skew  map[uint32]time.Duration // how far each server's wall clock is wrong
	busy  map[uint32]bool          // a fault is in progress at the server
	seed  uint64
	lives uint64
	trace *Trace
	only  selection     // the faults and requests to make; nil: all
	day   *day          // nil: a run of some busy minutes
	lived time.Duration // the longest life of a server
	rec   *observed     // the run's record; nil: the run keeps none
}

// running is one life of a server, from its start to its end.
type running struct {
	began  time.Time
	cancel context.CancelFunc
	dead   atomic.Bool
	ends   atomic.Bool                     // the server may end by itself, as a process exits
	i      atomic.Pointer[server.Instance] // nil until the server has joined
}

func newCluster(t *testing.T, seed uint64, set settings) *cluster {
	c := &cluster{set: set, t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)),
		disks: map[uint32]*serverDisk{},
		run:   map[uint32]*running{},
		skew:  map[uint32]time.Duration{}, busy: map[uint32]bool{}}
	c.net = NewNetwork(rand.New(rand.NewPCG(seed, 3)), c.set.latency)
	if exact || *traceFlag != "" {
		c.trace = newTrace(*traceFlag != "")
	}
	c.net.trace, c.net.grid = c.trace, c.set.grid
	c.only = mustSelect(t, *onlyFlag)
	var wg sync.WaitGroup
	for id := range c.ids() {
		c.newDisk(id)
		wg.Go(func() { c.start(id) })
	}
	wg.Wait()
	for id := range c.ids() {
		c.ready(id, 30*time.Second)
	}
	return c
}

// ids are the servers that the cluster begins with.
func (c *cluster) ids() func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for id := uint32(1); id <= 3 && yield(id); id++ {
		}
	}
}

func hostName(id uint32) string { return fmt.Sprintf("h%d", id) }

func peerAddrOf(id uint32) string { return hostName(id) + ":2888" }

func (c *cluster) newDisk(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives++
	d := newServerDisk(rand.New(rand.NewPCG(c.seed, 1000+c.lives)))
	d.files.trace, d.files.name, d.grid = c.trace, fmt.Sprint(id), c.set.grid
	c.disks[id] = d
}

func (c *cluster) disk(id uint32) *serverDisk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disks[id]
}

// wallClock returns a server's clock, which may be wrong.
func (c *cluster) wallClock(id uint32) func() time.Time {
	return func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(c.skew[id])
	}
}

// entropy is a source of random bytes. One seed always gives the same bytes.
type entropy struct {
	mu  sync.Mutex
	rng *rand.ChaCha8
}

func (e *entropy) Read(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rng.Read(b)
}

// start() begins a server's next life. It returns once the server has joined the cluster or has crashed.
func (c *cluster) start(id uint32) {
	disk := c.disk(id)
	ctx, cancel := context.WithCancel(context.Background())
	l := &running{began: time.Now(), cancel: cancel}
	c.mu.Lock()
	c.run[id] = l
	c.lives++
	source := [32]byte{byte(c.seed), byte(c.seed >> 8), byte(c.seed >> 16), byte(id), byte(c.lives),
		byte(c.lives >> 8)}
	c.mu.Unlock()
	peers := map[uint32]string{}
	for other := range c.ids() {
		peers[other] = peerAddrOf(other)
	}
	peers[id] = peerAddrOf(id)
	ticketAddr := ""
	if c.set.tickets {
		ticketAddr = hostName(id) + ":8183"
	}
	was := asHost(id)
	i, err := server.Start(ctx, server.Options{
		ID: id, ClientAddr: hostName(id) + ":2181", Listen: c.net.Listen, Logger: logger(id),
		TicketAddr: ticketAddr,
		Now:        c.wallClock(id), Rand: &entropy{rng: rand.NewChaCha8(source)},
		MaxConnsPerAddr: -1, LinearizableReads: c.set.linear, Peers: peers, PeerInsecure: true,
		DataDir: dataDir, SnapshotEntries: c.set.snapshot, HeartbeatTimeout: c.set.heartbeat,
		Test: func(o *raftfsm.Options) {
			o.Files, o.FreeBytes, o.TrailingLogs = disk.Files(), disk.free, c.set.trailing
			o.Listen, o.Dial = c.net.Listen, c.net.Dialer(hostName(id))
			o.Fatal = func(err error) {
				switch {
				case l.ends.Load():
					go c.crashIf(id, l)
				case !l.dead.Load():
					c.t.Errorf("G26: server %d stopped: %v", id, err)
				}
			}
		},
	})
	asHost(was)
	if err != nil {
		if !l.dead.Load() {
			c.t.Errorf("G26: start %d: %v", id, err)
		}
		return
	}
	l.i.Store(i)
	if l.dead.Load() { // crash() came while the server was starting
		kill(i)
	}
}

// kill() ends a server without letting it finish anything.
func kill(i *server.Instance) {
	i.Node().Abort()
	i.Close(context.Background())
}

// server() returns a server's instance. It returns nil if the server does not run.
func (c *cluster) server(id uint32) *server.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.run[id]; l != nil {
		return l.i.Load()
	}
	return nil
}

// leader() returns the server that leads. It returns 0 if no server is known to lead.
func (c *cluster) leader() uint32 {
	for id := uint32(1); id <= 4; id++ {
		if i := c.server(id); i != nil && i.Node().Status().Role == "leader" {
			return id
		}
	}
	return 0
}

func (c *cluster) ready(id uint32, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if i := c.server(id); i == nil || i.Ready(ctx) != nil {
		why := "it does not run"
		if i != nil {
			_, why = i.Node().Serving()
		}
		c.t.Errorf("G22: server %d does not serve after %v: %s", id, within, why)
	}
}

// mayStop notes that a server may end by itself. It returns the life of the server; nil: it does not run.
func (c *cluster) mayStop(id uint32) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.run[id]
	if l != nil {
		l.ends.Store(true)
	}
	return l
}

// crash() ends a server as kill -9 or the loss of its power would.
func (c *cluster) crash(id uint32) { c.crashIf(id, nil) }

// crashIf ends the given life of a server; nil: the present one.
func (c *cluster) crashIf(id uint32, only *running) {
	c.mu.Lock()
	l := c.run[id]
	if l == nil || only != nil && only != l {
		c.mu.Unlock()
		return
	}
	disk := c.disks[id]
	c.forget(id)
	c.mu.Unlock()
	l.dead.Store(true)
	c.net.Crash(hostName(id))
	disk.Crash()
	l.cancel()
	if i := l.i.Load(); i != nil {
		kill(i)
	}
}

// forget() notes that the life of a server ends. The caller holds the lock.
func (c *cluster) forget(id uint32) {
	if l := c.run[id]; l != nil {
		c.lived = max(c.lived, time.Since(l.began))
	}
	c.run[id] = nil
}

// stop() shuts a server down in order.
func (c *cluster) stop(id uint32) {
	c.mu.Lock()
	l := c.run[id]
	c.forget(id)
	c.mu.Unlock()
	if l == nil {
		return
	}
	l.dead.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if i := l.i.Load(); i != nil {
		i.Close(ctx)
	}
	c.net.Crash(hostName(id))
	c.disk(id).Crash()
	l.cancel()
}

// shutDown ends everything and waits until nothing is left running.
func (c *cluster) shutDown() {
	for id := uint32(1); id <= 4; id++ {
		c.crash(id)
	}
	time.Sleep(time.Minute)
}

// dial() connects a client's host to one of the servers.
func (c *cluster) dial(host string, rng *rand.Rand) func() (net.Conn, error) {
	return func() (net.Conn, error) { return c.dialTo(host, uint32(1+rng.IntN(3))) }
}

func (c *cluster) dialTo(host string, id uint32) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.net.Dialer(host)(ctx, hostName(id)+":2181")
}
