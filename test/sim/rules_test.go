package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A leader whose disk hangs does not keep more and more requests waiting. Other servers accept writes again
// within 2.5 s (R2), and the next leader takes the waiting requests.
func TestR2R3HangingDiskOfTheLeader(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		w := c.client("c0", others[0], 20*time.Second)
		must.Get(w.Create(Root, nil, 0))(t)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for k := range 10 { // the clients write through the leader while it accepts writes
			at := c.client(fmt.Sprintf("c%d", k), leader, 20*time.Second)
			at.Timeout = 60 * time.Second
			wg.Go(func() {
				for {
					if _, err := at.SetData(Root, nil, -1); err != nil {
						at.Close()
						return
					}
					select {
					case <-stop:
						at.Close()
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := runtime.NumGoroutine()
		c.mayStop(leader)
		c.disk(leader).Hang()
		hung := time.Now()
		if _, err := w.SetData(Root, nil, -1); err != nil {
			t.Errorf("a client of another server lost its connection: %v", err)
		}
		if d := time.Since(hung); d > 2500*time.Millisecond {
			t.Errorf("R2: the next write was answered %v after the disk had begun to hang", d)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+40 {
			t.Errorf("R3: %d goroutines while the disk hangs, %d before", now, before)
		}
		close(stop)
		wg.Wait()
		c.disk(leader).Go()
	})
}

// A slow disk deposes no leader. Every ten seconds the disk of one server is slow for a second: a sync takes
// a third of a second to a second.
func TestR2SlowDiskDeposesNobody(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		rng := rand.New(rand.NewPCG(c.seed, 9)) // not c.rng, from which the faults draw
		wg.Go(func() { c.writes("c0", rng, stop) })
		leader, others := c.mustLead()
		term := c.server(leader).Node().Status().Term
		rounds := 24
		if testing.Short() {
			rounds = 8
		}
		for round := range rounds {
			id := leader
			if round%4 == 3 {
				id = others[round/4%2]
			}
			c.disk(id).Slow(660 * time.Millisecond) // a sync takes a third of a second to one second
			time.Sleep(time.Second)
			c.disk(id).Slow(500 * time.Microsecond)
			time.Sleep(9 * time.Second)
		}
		st := c.server(leader).Node().Status()
		expect.Equal(t, st.Role, "leader", "the leader of term: role")
		expect.Equal(t, st.Term, term, "the leader of term")
		close(stop)
		wg.Wait()
	})
}

// After partitions and restarts every server serves within 10 s, and stops within 5 s when asked to.
func TestR4ReplicationIsNeverWedged(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		rng := rand.New(rand.NewPCG(c.seed, 9)) // not c.rng, from which the faults draw
		wg.Go(func() { c.writes("c0", rng, stop) })
		f := newFaults(c)
		rounds := 8
		if testing.Short() {
			rounds = 3
		}
		for round := range rounds {
			id := uint32(1 + round%3)
			f.flap(id)
			f.away(1+id%3, time.Second)
			f.wg.Wait()
			c.net.Heal()
			var was [4]uint64
			for id := range c.ids() {
				was[id] = c.server(id).Node().Status().Applied
			}
			time.Sleep(10 * time.Second)
			for id := range c.ids() {
				if now := c.server(id).Node().Status().Applied; now <= was[id]+10 {
					t.Errorf("R4: server %d had applied %d and 10 s later %d", id, was[id], now)
				}
			}
			asked := time.Now()
			c.stop(id)
			if d := time.Since(asked); d > 5*time.Second {
				t.Errorf("R4: server %d took %v to stop", id, d)
			}
			c.start(id)
		}
		close(stop)
		wg.Wait()
	})
}

// The leader's host vanishes while the leader sends a snapshot. The server that receives the snapshot must be
// able to vote soon.
func TestR5LeaderVanishesWhileItSendsASnapshot(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 50, trailing: 64}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		w := c.client("c0", leader, 30*time.Second)
		c.crash(others[1])
		for i := range 300 {
			must.Get(w.Create(fmt.Sprintf("/n%d", i), make([]byte, 30_000), 0))(t)
		}
		time.Sleep(5 * time.Second) // the servers take snapshots
		c.net.Throttle(1 << 20)
		c.start(others[1])
		time.Sleep(4 * time.Second)
		if st := c.server(others[1]).Node().Status(); st.Applied > 100 {
			t.Fatalf("the snapshot has arrived already: %d entries applied", st.Applied)
		}
		c.net.Freeze(hostName(leader))
		c.net.Throttle(0)
		// The receiver of the snapshot votes as soon as it has given up the snapshot.
		const slowest = 2500 * time.Millisecond
		vanished := time.Now()
		for c.leader() == leader || c.leader() == 0 {
			if time.Since(vanished) > slowest {
				t.Fatalf("R5: no server leads %v after the leader's host has vanished", slowest)
			}
			time.Sleep(20 * time.Millisecond)
			if id := others[0]; c.server(id).Node().Status().Role == "leader" {
				break
			}
		}
		t.Logf("a new leader after %v", time.Since(vanished))
		c.net.Thaw(hostName(leader))
	})
}

// Servers lose power during elections, over and over. Two servers never lead in one term, and no answered
// write is lost.
func TestR11TermsAndVotesSurvivePowerLoss(t *testing.T) {
	set := settings{heartbeat: 300 * time.Millisecond, latency: time.Millisecond, snapshot: 1 << 30,
		trailing: 10_240}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		leaders := map[uint64]uint32{}
		look := func() {
			for id := range c.ids() {
				i := c.server(id)
				if i == nil {
					continue
				}
				if st := i.Node().Status(); st.Role == "leader" {
					if was, known := leaders[st.Term]; known && was != id {
						t.Errorf("R11: servers %d and %d lead in term %d", was, id, st.Term)
					}
					leaders[st.Term] = id
				}
			}
		}
		rounds := 100
		if testing.Short() {
			rounds = 20
		}
		for range rounds {
			for end := time.Now().Add(time.Duration(c.rng.Int64N(int64(900 * time.Millisecond)))); time.Now().Before(
				end); {
				time.Sleep(5 * time.Millisecond)
				look()
			}
			for id := range c.ids() {
				if c.rng.IntN(3) > 0 {
					c.crash(id)
				}
			}
			for id := range c.ids() {
				if c.server(id) == nil {
					c.start(id)
				}
			}
		}
		time.Sleep(3 * time.Second)
		look()
		t.Logf("%d terms were led", len(leaders))
		if len(leaders) < rounds/10 {
			t.Errorf("only %d terms were led", len(leaders))
		}
	})
}

// All servers start again with a long log and no snapshot. The first reply of each server is at or past the
// last acknowledged write, and no session ends.
func TestR13R16ServersThatStartShowNothingOld(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		w := c.client("c0", 1, 20*time.Second)
		must.Get(w.Create("/e", nil, 1))(t)
		for i := range 3000 {
			must.Get(w.Create(fmt.Sprintf("/n%d", i), nil, 0))(t)
		}
		for round := range 3 {
			for id := range c.ids() {
				c.crash(id)
			}
			if round == 1 {
				c.disk(1).Slow(100 * time.Millisecond)
			}
			var wg sync.WaitGroup
			for id := range c.ids() {
				wg.Go(func() { c.start(id) })
			}
			wg.Wait()
			for id := range c.ids() {
				answered := false
				for end := time.Now().Add(15 * time.Second); !answered &&
					time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					again, err := c.attach("c0", id, w)
					if errors.Is(err, wire.ErrRefused) {
						t.Fatalf("R13: server %d told a session of 20 s that it has expired", id)
					}
					if err != nil {
						continue
					}
					answered = true
					seen := w.Zxid
					if _, err := again.Exists("/n2999", false); err != nil {
						t.Errorf("R16: server %d does not know a node that was acknowledged: %v", id, err)
					}
					if again.Zxid < seen {
						t.Errorf("R16: server %d answers at zxid %d, the client has seen %d", id, again.Zxid, seen)
					}
					if _, err := again.Exists("/e", false); err != nil {
						t.Errorf("R13: server %d has lost a node of a live session: %v", id, err)
					}
					w = again
				}
				if !answered {
					t.Errorf("server %d did not answer", id)
				}
			}
			c.disk(1).Slow(time.Millisecond)
		}
	})
}

// A leader that is cut off does not answer a sync, neither before another server leads nor afterwards.
func TestR15SyncIsNotAnsweredByALeaderCutOff(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		for round := range 10 {
			leader, others := c.mustLead()
			old := c.client("c0", leader, 20*time.Second)
			young := c.client("c1", others[0], 20*time.Second)
			if round == 0 {
				must.Get(old.Create("/n", []byte("0"), 0))(t)
			}
			f := newFaults(c)
			f.isolate(leader)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := young.SetData("/n", []byte(strconv.Itoa(round+1)), -1)
				if err != nil {
					t.Errorf("the majority did not write: %v", err)
				}
			})
			time.Sleep(time.Duration(round) * 200 * time.Millisecond)
			if old.Sync("/n") == nil {
				b, _, err := old.GetData("/n", false)
				t.Errorf("R15: round %d: a leader that is cut off answered a sync, and then %q, %v", round, b, err)
			}
			wg.Wait()
			old.Close()
			young.Close()
			c.net.Heal()
			c.ready(leader, 10*time.Second)
		}
	})
}

// wedged is an observer that stops the application of entries while `hold` is set.
type wedged struct {
	quietObserver
	mu   sync.Mutex
	hold chan struct{} // nil: entries are applied
}

func (w *wedged) Applied() {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// A server that hears its leader but applies no entries stops serving. It serves again when it has caught up.
func TestR17ServerThatDoesNotGetOnStopsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := new(wedged)
		c := newNodes(t, 1, map[uint32]raftfsm.Observer{3: slow})
		time.Sleep(5 * time.Second)
		stop := make(chan struct{})
		var mu sync.Mutex
		var wg sync.WaitGroup
		open := 0
		wg.Go(func() { c.writer(1, 0, stop, &mu, map[string]int{}, &open) })
		hold := make(chan struct{})
		slow.mu.Lock()
		slow.hold = hold
		slow.mu.Unlock()
		began := time.Now()
		for ok := true; ok; ok, _ = c.node(3).Serving() {
			if time.Since(began) > 15*time.Second {
				t.Error("R17: a server that has applied nothing for 15 s serves")
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(began); d < 5*time.Second {
			t.Errorf("it stopped after %v", d)
		}
		slow.mu.Lock()
		slow.hold = nil
		slow.mu.Unlock()
		close(hold)
		time.Sleep(5 * time.Second)
		if ok, why := c.node(3).Serving(); !ok {
			t.Errorf("R17: it has caught up and does not serve: %s", why)
		}
		close(stop)
		wg.Wait()
		for id := uint32(1); id <= 3; id++ {
			c.crash(id)
		}
		time.Sleep(time.Minute)
	})
}

// Large writes over narrow wires do not depose the leader.
func TestR19LargeWritesOverNarrowWires(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		leader, _ := c.mustLead()
		term := c.server(leader).Node().Status().Term
		var clients []*wire.Conn
		for k := range 10 {
			w := c.client(fmt.Sprintf("c%d", k), uint32(1+k%3), 40*time.Second)
			w.Timeout = 5 * time.Minute
			must.Get(w.Create(fmt.Sprintf("/n%d", k), nil, 0))(t)
			clients = append(clients, w)
		}
		c.net.Throttle(20_000_000 / 8)
		var wg sync.WaitGroup
		worst := make([]time.Duration, len(clients))
		for k, w := range clients {
			wg.Go(func() {
				for range 4 / rarer {
					asked := time.Now()
					if _, err := w.SetData(fmt.Sprintf("/n%d", k), make([]byte, 1_000_000), -1); err != nil {
						t.Errorf("R19: client %d: %v after %v", k, err, time.Since(asked))
						return
					}
					worst[k] = max(worst[k], time.Since(asked))
				}
			})
		}
		wg.Wait()
		st := c.server(leader).Node().Status()
		expect.Equal(t, st.Role, "leader", "R19: role")
		expect.Equal(t, st.Term, term, "R19: term")
		t.Logf("the slowest writes took %v", worst)
		c.net.Throttle(0)
	})
}

// Servers send their pending requests again to the next leader when their leader is cut off. Each request
// counts once. Most clients get every reply. If a server has no leader for too long, its clients have to
// connect again.
func TestG3R8RequestsSentToTwoLeadersCountOnce(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: 10 * time.Millisecond, snapshot: 1 << 30, trailing: 10_240}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		w := c.client("c0", 1, 20*time.Second)
		must.Get(w.Create("/q", nil, 0))(t)
		w.CloseSession()
		w.Close()
		each, rounds := 60, 80
		if testing.Short() {
			rounds = 24
		}
		var answered atomic.Int64
		for round := range rounds {
			leader, others := c.mustLead()
			var wg sync.WaitGroup
			for k, id := range others {
				w := c.client(fmt.Sprintf("c%d", k), id, 20*time.Second)
				wg.Go(func() {
					defer w.Close()
					for xid := range int32(each) {
						mine := fmt.Appendf(nil, "%d-%d-%d", round, id, xid)
						if w.SendXid(1+xid, jute.OpCreate, wire.Create("/q/n-", mine, jute.WorldAnyone,
							jute.FlagPersistentSequential)) != nil {
							return
						}
						time.Sleep(time.Millisecond)
					}
					for range each {
						f, err := w.Next()
						if err != nil {
							return
						}
						if f.Code != jute.OK {
							t.Errorf("R8: round %d: %v", round, f.Code)
						}
						answered.Add(1)
					}
					w.CloseSession()
				})
			}
			time.Sleep(time.Duration(40+round%50) * time.Millisecond)
			// If the leader crashes, the other servers lose their connections to it, and call the next leader
			// at once. If the leader is only cut off, they may learn of the stored entries before they call.
			if round%4 > 0 {
				c.crash(leader)
				wg.Wait()
				c.start(leader)
			} else {
				f := newFaults(c)
				f.isolate(leader)
				wg.Wait()
				c.net.Heal()
			}
			c.ready(leader, 10*time.Second)
		}
		w = c.client("c0", 1, 20*time.Second)
		must.OK(t, w.Sync("/q"))
		names, _ := must.Get2(w.Children("/q", false))(t)
		seen := map[string]string{}
		for _, name := range names {
			b, _ := must.Get2(w.GetData("/q/"+name, false))(t)
			if other := seen[string(b)]; other != "" {
				t.Errorf("G3: request %s made %s and %s", b, other, name)
			}
			seen[string(b)] = name
		}
		t.Logf("%d of %d requests answered, %d nodes", answered.Load(), 2*each*rounds, len(names))
		if n := int(answered.Load()); n < each*rounds || len(names) < n {
			t.Errorf("G2: %d nodes after %d creates that were answered", len(names), n)
		}
	})
}
