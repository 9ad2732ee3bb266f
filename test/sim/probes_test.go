package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/test/wire"
)

// probeTime is the timeout of most sessions of probes. No probe is silent for so long.
const probeTime = 20 * time.Second

// probes() tests coincidences that random requests meet only once in days: two events within the same
// millisecond. Each probe repeats its two events again and again. The cluster has no faults and no other
// clients, so that each probe can demand an answer within a short time.
func (c *cluster) probes() {
	c.together(func(id uint32, k int) { c.pingAtOutcomes(id, k) })
	c.together(func(id uint32, k int) { c.leaveAtAnswers(id, k) })
	c.noWatchIsLeft()
	var wg sync.WaitGroup
	wg.Go(c.takeSlowly)
	for k := range 8 {
		wg.Go(func() { c.comeBackLate(k) })
	}
	wg.Wait()
	c.changeLeaders()
	if !c.set.tickets { // a restore may give back tickets that were given back
		c.restores()
	}
}

// together() runs two probes in parallel at each server.
func (c *cluster) together(do func(id uint32, k int)) {
	var wg sync.WaitGroup
	for id := range c.ids() {
		for k := range 2 {
			wg.Go(func() { do(id, k) })
		}
	}
	wg.Wait()
}

// step() returns the time between two moments at which a message can arrive.
func (c *cluster) step() time.Duration { return max(c.set.grid, time.Millisecond/2) }

// near() returns a source of random numbers for a probe at a server.
func (c *cluster) near(what, id uint32, k int) *rand.Rand {
	return rand.New(rand.NewPCG(c.seed, uint64(what)<<16+uint64(id)<<8+uint64(k)))
}

// pingAtOutcomes sends pings after writes, so that a ping arrives when the server applies the write before
// the ping. The zxid in the ping's reply must not be lower than the zxid of the write. If the ping comes too
// early, it waits for the write's outcome, and both replies arrive at once.
func (c *cluster) pingAtOutcomes(id uint32, k int) {
	rng := c.near(1, id, k)
	w := c.client("c0", id, probeTime)
	defer w.CloseSession()
	path := fmt.Sprintf("/ping-%d-%d", id, k)
	if _, err := w.Create(path, nil, jute.FlagEphemeral); err != nil {
		c.t.Errorf("a client of a cluster that is whole: %v", err)
		return
	}
	gap := 2 * c.set.latency
	for range 150 {
		if _, err := w.Send(jute.OpSetData, wire.SetData(path, nil, -1)); err != nil {
			c.t.Errorf("a client of a cluster that is whole: %v", err)
			return
		}
		time.Sleep(time.Until(onGrid(time.Now().Add(gap), c.set.grid)))
		_ = w.SendXid(jute.XidPing, jute.OpPing, nil)
		write, err := w.Next()
		at := time.Now()
		ping, err2 := w.Next()
		if err = errors.Join(err, err2); err != nil {
			c.t.Errorf("a client of a cluster that is whole: %v", err)
			return
		}
		if ping.Zxid < write.Zxid {
			c.t.Errorf("G4: server %d answers a ping with zxid %#x, after an outcome with %#x", id, ping.Zxid,
				write.Zxid)
		}
		if time.Now().Equal(at) {
			gap += c.step()
		} else {
			gap = max(0, gap-c.step())
		}
		gap += c.step() * time.Duration(rng.IntN(3)-1)
	}
}

// leftPath is the node that departing clients watch.
const leftPath = Root + "/left"

// leaveAtAnswers ends a connection at the moment at which the server answers a read on it. The read has
// waited for a sync, and sets a watch.
func (c *cluster) leaveAtAnswers(id uint32, k int) {
	rng := c.near(2, id, k)
	w := c.client("c0", id, probeTime)
	for range 60 {
		began := time.Now()
		if w.Sync(leftPath) != nil {
			break
		}
		took := time.Since(began)
		_, _ = w.Send(jute.OpSync, wire.Path(leftPath))
		_, _ = w.Send(jute.OpExists, wire.PathWatch(leftPath, true))
		// An answer takes one to two latencies to arrive, so the server sends it `there` after the request.
		there := took - c.set.latency - time.Duration(rng.Int64N(int64(c.set.latency)+1))
		there += c.step() * time.Duration(rng.IntN(3)-1)
		time.Sleep(time.Until(onGrid(time.Now().Add(max(0, there)), c.set.grid)))
		w.Close()
		again, err := c.attach("c0", id, w)
		if err != nil {
			c.t.Errorf("a client of a cluster that is whole: %v", err)
			return
		}
		w = again
	}
	w.CloseSession()
	w.Close()
}

// noWatchIsLeft fails if a server still has watches of closed connections.
func (c *cluster) noWatchIsLeft() {
	time.Sleep(time.Second)
	for id := range c.ids() {
		c.server(id).Clients.WatchScan(func(path string, session int64) bool {
			if path == leftPath {
				c.t.Errorf("G12: server %d has a watch of session %#x, whose connections have ended", id,
					session)
			}
			return path != leftPath
		})
	}
}

// slowTime is the session timeout of clients that are slow or late.
const slowTime = 4 * time.Second

// takeSlowly makes a client of each server read long answers slowly. This takes much longer than its session
// timeout, and the client sends pings all the time. A server that is writing reads nothing from its client,
// but must not count the client as silent.
func (c *cluster) takeSlowly() {
	w := c.client("c1", 1, probeTime)
	const size, reads = 900 << 10, 2
	path := Root + "/long"
	_, _ = w.Create(path, make([]byte, size), jute.FlagPersistent)
	var wg sync.WaitGroup
	for id := range c.ids() {
		wg.Go(func() {
			w := c.client("c1", id, slowTime)
			must := w.Sync(path)
			var asks []byte // in one piece, because the server reads no further request while it writes
			for k := range reads {
				asks = wire.AppendRequest(asks, int32(1000+k), jute.OpGetData, wire.PathWatch(path, false))
			}
			must = errors.Join(must, w.WriteRaw(asks))
			stop := make(chan struct{})
			var pings sync.WaitGroup
			pings.Go(func() {
				for !closed(stop) && w.SendXid(jute.XidPing, jute.OpPing, nil) == nil {
					time.Sleep(slowTime / 4)
				}
			})
			b := make([]byte, 8<<10)
			for left := reads * size; left > 0 && must == nil; {
				n, err := w.Read(b)
				left, must = left-n, err
				time.Sleep(time.Duration(n) * time.Second / (90 << 10))
			}
			close(stop)
			pings.Wait()
			w.Close()
			again, err := c.attach("c1", id, w)
			if err != nil {
				c.t.Errorf("G10: the session of a client of server %d, which took long answers slowly and "+
					"pinged: %v, %v", id, must, err)
				return
			}
			again.CloseSession()
		})
	}
	wg.Wait()
	_ = w.Delete(path, -1)
	w.CloseSession()
}

// comeBackLate makes a client return when its session is just about to end. If a server accepts the session,
// the session lives on.
func (c *cluster) comeBackLate(k int) {
	rng := c.near(3, 0, k)
	const grace = slowTime / 8 // how long a session outlives its timeout: Term.grace in raftfsm/leading
	for range 4 {
		lead, _ := c.mustLead()
		w := c.client("c2", lead, slowTime)
		sent := time.Now()
		if w.Sync(Root) != nil {
			continue
		}
		w.Close()
		// A leader proposes the end of the session a little later. Then the entry takes a few latencies.
		end := sent.Add(slowTime + grace + time.Duration(rng.Int64N(int64(6*time.Millisecond+6*c.set.latency))))
		time.Sleep(time.Until(end) - 500*time.Millisecond)
		nc, err := c.dialTo("c2", lead)
		if err != nil {
			continue
		}
		time.Sleep(time.Until(onGrid(end, c.set.grid)))
		back := wire.New(nc)
		back.Timeout, back.Zxid = probeTime, w.Zxid
		if back.Connect(wire.Attach(w.Session, w.Zxid)) != nil {
			continue // too late
		}
		err = back.Sync(Root)
		if err == nil {
			back.CloseSession()
			continue
		}
		if _, again := c.attach("c2", lead, w); errors.Is(again, wire.ErrRefused) {
			c.t.Errorf("G10: session %#x ended after its client was let in: %v", w.Session.ID, err)
		}
	}
}

// lone is the only client of its server whose requests go through the log. If the server forgets a request,
// no later request of another client hides that.
type lone struct {
	c        *cluster
	id       uint32
	rest     *atomic.Bool // while set, the client sends no requests
	answered atomic.Int64
}

// loneRest is how long a lone client waits before it connects again.
const loneRest = 50 * time.Millisecond

func (l *lone) run(stop <-chan struct{}) {
	for ; !closed(stop); l.pause(stop) {
		nc, err := l.c.dialTo("c3", l.id)
		if err != nil {
			time.Sleep(loneRest)
			continue
		}
		w := wire.New(nc)
		w.Timeout = probeTime
		if w.Connect(wire.NewSession(int32(probeTime.Milliseconds()))) == nil {
			for !closed(stop) && w.Sync(Root) == nil {
				l.answered.Add(1)
				l.pause(stop)
			}
			if closed(stop) {
				w.CloseSession()
			}
		}
		w.Close()
		time.Sleep(loneRest)
	}
}

func (l *lone) pause(stop <-chan struct{}) {
	for l.rest.Load() && !closed(stop) {
		time.Sleep(time.Millisecond)
	}
}

// changeLeaders changes the leader in all possible ways, while lone clients send requests. Once all servers
// serve, the request of each client must be answered soon.
func (c *cluster) changeLeaders() {
	rng := c.near(4, 0, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var clients []*lone
	var rest atomic.Bool
	for id := range c.ids() {
		l := &lone{c: c, id: id, rest: &rest}
		clients = append(clients, l)
		wg.Go(func() { l.run(stop) })
	}
	often(true)
	for range 40 {
		c.handOver(rng)
		c.allAnswered(clients)
	}
	often(false)
	for range 2 {
		c.restartUnseen(&rest)
		c.allAnswered(clients)
		c.beginTermSlowly(&rest)
		c.allAnswered(clients)
	}
	close(stop)
	wg.Wait()
}

// noneOnItsWay stops the lone clients, and waits long enough for all their requests to be answered. If raft
// ends while a proposal has no answer, the proposal may never get one, and a goroutine would wait forever.
func (c *cluster) noneOnItsWay(rest *atomic.Bool) {
	rest.Store(true)
	time.Sleep(200*time.Millisecond + 20*c.set.latency)
}

// often() makes goroutines wait more often, in runs that explore with delays.
var often = func(bool) {}

// allAnswered waits for two more answers to each lone client.
func (c *cluster) allAnswered(clients []*lone) {
	for id := range c.ids() {
		c.ready(id, 20*time.Second)
	}
	began := time.Now()
	for _, l := range clients {
		for from := l.answered.Load(); l.answered.Load() < from+2; time.Sleep(time.Millisecond) {
			if time.Since(began) > 5*time.Second {
				c.t.Errorf("G22: a lone request to server %d has no answer 5 s after all servers serve", l.id)
				return
			}
		}
	}
}

// handOver hands leadership to another server, while the old leader gets requests to change the members.
// These requests change nothing.
func (c *cluster) handOver(rng *rand.Rand) {
	lead, others := c.mustLead()
	next := others[rng.IntN(2)]
	asked := lead + 1 // any voter
	if asked > 3 {
		asked = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = c.server(lead).Node().ChangeMember(ctx, change.Change{Op: change.Lead, ID: next})
	})
	for range 12 {
		wg.Go(func() {
			_ = c.server(lead).Node().ChangeMember(ctx, change.Change{Op: change.Promote, ID: asked})
		})
		time.Sleep(c.step())
	}
	wg.Wait()
}

// restartUnseen restarts a leader while the leader is cut off from the other servers. As soon as the others
// can reach it again, they must learn that it no longer leads. They must not wait until heartbeats have
// failed.
func (c *cluster) restartUnseen(rest *atomic.Bool) {
	c.noneOnItsWay(rest)
	lead, others := c.mustLead()
	cut := func(do func(from, to string)) {
		for _, id := range others {
			do(hostName(lead), hostName(id))
			do(hostName(id), hostName(lead))
		}
	}
	cut(c.net.Cut)
	c.crash(lead)
	rest.Store(false)
	var starts sync.WaitGroup
	starts.Go(func() { c.start(lead) })
	for range 200 {
		if c.net.Listens(peerAddrOf(lead)) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cut(c.net.Mend)
	seen := time.Now()
	for c.leader() == 0 && time.Since(seen) < 20*time.Second {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(seen)
	starts.Wait()
	// Heartbeats fail at the earliest one heartbeat timeout after the cut.
	soon := c.set.heartbeat/4 + 200*time.Millisecond + 30*c.set.latency
	if took > soon && soon < c.set.heartbeat {
		c.t.Errorf("G22: no server leads for %v after the others saw that the leader was started again", took)
	}
}

// beginTermSlowly ends a leader while the logs of the other servers do not reach their disks. So the next
// leader's term begins long after its election. Until then the other server must not call the next leader
// over and over.
func (c *cluster) beginTermSlowly(rest *atomic.Bool) {
	c.noneOnItsWay(rest)
	lead, others := c.mustLead()
	for _, id := range others {
		c.disk(id).HangLog()
	}
	c.crash(lead)
	rest.Store(false)
	c.net.ForgetCalls()
	time.Sleep(c.set.heartbeat + 2*time.Second)
	from, to, most := c.net.Calls()
	for _, id := range others {
		c.disk(id).Go()
	}
	c.start(lead)
	c.t.Logf("%s calls %s %d times within a second, before a term begins", from, to, most)
	if most > 75 {
		c.t.Errorf("%s calls %s %d times within a second, before a term begins", from, to, most)
	}
}
