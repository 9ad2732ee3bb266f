package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// If one server fails, in any way, writes through the other servers go on within 5 s. A session whose client
// keeps trying does not end.
func TestG21OneServerCanFailInAnyWay(t *testing.T) {
	for _, k := range []struct {
		name string
		harm func(f *faults, id uint32)
	}{
		{"dead", func(f *faults, id uint32) { f.crash(id) }},
		{"stopped", func(f *faults, id uint32) { f.net.Freeze(hostName(id)); f.disk(id).Slow(9 * time.Second) }},
		{"isolated", func(f *faults, id uint32) { f.isolate(id) }},
		{"mute", func(f *faults, id uint32) {
			for other := range f.ids() {
				f.net.Cut(hostName(id), hostName(other))
			}
		}},
		{"deaf", func(f *faults, id uint32) {
			for other := range f.ids() {
				f.net.Cut(hostName(other), hostName(id))
			}
		}},
		{"on a disk that is slow", func(f *faults, id uint32) { f.disk(id).Slow(200 * time.Millisecond) }},
		{"on a disk that hangs", func(f *faults, id uint32) { f.mayStop(id); f.disk(id).Hang() }},
	} {
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, leads %v", k.name, leads), func(t *testing.T) {
				quiet(t, func(t *testing.T, c *cluster) { oneServerFails(t, c, k.harm, k.name, leads) })
			})
		}
	}
}

func oneServerFails(t *testing.T, c *cluster, harm func(*faults, uint32), name string, leads bool) {
	leader, others := c.mustLead()
	bad, good := leader, others[0]
	if !leads {
		bad = others[1]
	}
	w := c.client("c0", good, 20*time.Second)
	must.Get(w.Create(Root, nil, 0))(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	defer w.Close()
	for k := range 4 { // half of the clients read, the others only ping
		s := &steady{c: c, host: fmt.Sprintf("s%d", k), reads: time.Duration(1-k%2) * time.Second,
			at: uint32(k)}
		wg.Go(func() { s.run(stop) })
	}
	time.Sleep(5 * time.Second)
	f := newFaults(c)
	harm(f, bad)
	worst := time.Duration(0)
	limit := 5 * time.Second
	if name == "on a disk that hangs" && leads {
		limit = 15 * time.Second // R2: the watchdog ends the server after 10 s
	}
	lasts := 60 * time.Second
	if testing.Short() {
		lasts = 20 * time.Second
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		asked := time.Now()
		if _, err := w.SetData(Root, nil, -1); err != nil {
			t.Errorf("G21: the client of a server that is well lost its connection after %v: %v", time.Since(asked),
				err)
			break
		}
		worst = max(worst, time.Since(asked))
	}
	t.Logf("the slowest write took %v", worst)
	if worst > limit {
		t.Errorf("G21: a write took %v", worst)
	}
	f.disk(bad).Go()
	f.disk(bad).Slow(time.Millisecond)
	f.net.Thaw(hostName(bad))
	c.net.Heal()
	time.Sleep(5 * time.Second)
}

// The servers keep a short log (R18). A server that was away too long for that log gets a snapshot and
// catches up, again and again. During that time a fourth server is added, becomes a voter and is removed,
// even while it leads (R21).
func TestG22R18R21ServersCatchUpAndComeAndGo(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 300, trailing: 256}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for id := range c.ids() {
			rng := rand.New(rand.NewPCG(1, uint64(id)))
			wg.Go(func() { c.writes(fmt.Sprintf("c%d", id), rng, stop) })
		}
		rounds := max(1, 3/rarer)
		if testing.Short() {
			rounds = 1
		}
		for round := range rounds {
			id := uint32(1 + round%3)
			c.crash(id)
			time.Sleep(30 * time.Second)
			c.start(id)
			c.ready(id, 10*time.Second)
		}
		must.OK(t, c.change(change.Change{Op: "add", ID: fourth, Addr: peerAddrOf(fourth)}))
		c.newDisk(fourth)
		c.start(fourth)
		c.ready(fourth, 10*time.Second)
		promoted := false
		for range 20 {
			if promoted = c.change(change.Change{Op: "promote", ID: fourth}) == nil; promoted {
				break
			}
			time.Sleep(time.Second)
		}
		if !promoted {
			t.Error("R21: the fourth server was not promoted")
		}
		leader, others := c.mustLead()
		f := newFaults(c)
		f.isolate(others[0]) // the other three servers go on
		time.Sleep(10 * time.Second)
		c.mayStop(leader)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
			err := c.change(change.Change{Op: "remove", ID: leader})
			if err == nil || strings.Contains(err.Error(), "is not a member") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("R21: the leader could not be removed: %v", err)
			}
		}
		c.net.Heal()
		time.Sleep(10 * time.Second)
		if i := c.server(leader); i != nil {
			if ok, _ := i.Node().Serving(); ok {
				t.Error("R21: a server that was removed serves clients")
			}
		}
		c.ready(others[0], 10*time.Second)
		c.ready(fourth, 10*time.Second)
		close(stop)
		wg.Wait()
		time.Sleep(10 * time.Second)
		var sums []uint64
		for _, id := range []uint32{others[0], others[1], fourth} {
			c.server(id).Node().View(func(s *state.State) { sums = append(sums, s.Digest()) })
		}
		if slices.Min(sums) != slices.Max(sums) {
			t.Errorf("G9: digests %x", sums)
		}
	})
}

// writes() makes sets and creates as fast as answers come, until `stop` is closed.
func (c *cluster) writes(host string, rng *rand.Rand, stop <-chan struct{}) {
	for n := 0; ; {
		select {
		case <-stop:
			return
		default:
		}
		nc, err := c.dialTo(host, uint32(1+rng.IntN(4)))
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		w := wire.New(nc)
		w.Timeout = 3 * time.Second
		err = w.Connect(wire.NewSession(10_000))
		for err == nil {
			path := fmt.Sprintf("/%s-%d", host, n%500)
			if _, err = w.Create(path, []byte("x"), 0); err != nil {
				_, err = w.SetData(path, []byte("y"), -1)
			}
			n++
			select {
			case <-stop:
				err = errors.New("enough")
			case <-time.After(20 * time.Millisecond):
			}
		}
		nc.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

// Tokens rise with each grant of a lock, in the order of the grants, while holders vanish and leaders change.
// So a resource that checks tokens never accepts an older holder after a newer one.
func TestG20TokensRiseInTheOrderOfGrants(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		w := c.client("c9", 1, 30*time.Second)
		must.Get(w.Create("/lock", nil, 0))(t)
		var mu sync.Mutex
		var tokens []int64
		accepted, refused := 0, 0
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for k := range 6 {
			rng := rand.New(rand.NewPCG(7, uint64(k)))
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					nc, err := c.dialTo(fmt.Sprintf("c%d", k), uint32(1+rng.IntN(3)))
					if err != nil {
						time.Sleep(50 * time.Millisecond)
						continue
					}
					h := wire.New(nc)
					h.Timeout = 3 * time.Second
					if token := acquire(h); token != 0 {
						mu.Lock()
						if n := len(tokens); n > 0 && token <= tokens[n-1] {
							refused++ // the resource has seen a newer holder
						} else {
							tokens = append(tokens, token)
							accepted++
						}
						mu.Unlock()
						time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
						if rng.IntN(6) > 0 { // otherwise the holder vanishes, and its session expires
							h.CloseSession()
						}
					}
					nc.Close()
				}
			})
		}
		f := newFaults(c)
		for range 10 {
			time.Sleep(4 * time.Second)
			f.away(f.leaderOr(1), time.Second)
		}
		f.wg.Wait()
		time.Sleep(10 * time.Second)
		close(stop)
		wg.Wait()
		t.Logf("%d grants, %d of them too late", accepted+refused, refused)
		if accepted < 15 || refused > accepted/10 {
			t.Errorf("G20: %d tokens rose, %d did not", accepted, refused)
		}
	})
}

// acquire() waits for the lock as the plain recipe does. It returns the zxid of the contender's node. It
// returns 0 if the connection was lost.
func acquire(w *wire.Conn) int64 {
	if w.Connect(wire.NewSession(4000)) != nil {
		return 0
	}
	path, err := w.Create("/lock/n-", nil, jute.FlagEphemeralSequential)
	if err != nil {
		return 0
	}
	for {
		names, _, err := w.Children("/lock", false)
		if err != nil {
			return 0
		}
		slices.Sort(names)
		at := slices.Index(names, path[len("/lock/"):])
		switch {
		case at < 0:
			return 0
		case at == 0:
			st, err := w.Exists(path, false)
			if err != nil {
				return 0
			}
			return st.Czxid
		}
		if _, err := w.Exists("/lock/"+names[at-1], true); err == nil {
			for waiting := true; waiting; {
				if w.Ping() != nil {
					return 0
				}
				waiting = len(w.Events) == 0
				time.Sleep(20 * time.Millisecond)
			}
		}
		w.Events = nil
	}
}

// Clients that send random bytes, hang, or do not read disturb no other client. They leave no sessions,
// connections or goroutines on the servers.
func TestG25HostileClientsLeaveNothingBehind(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		good := c.client("c0", 1, 20*time.Second)
		must.Get(good.Create("/n", make([]byte, 100_000), 0))(t)
		time.Sleep(time.Second)
		synctest.Wait()
		before := runtime.NumGoroutine()
		rng := rand.New(rand.NewPCG(25, 0))
		for i := range 300 {
			nc := must.Get(c.dialTo("c1", 1))(t)
			w := wire.New(nc)
			switch i % 5 {
			case 0: // the client sends no bytes
			case 1: // the client sends random bytes
				b := make([]byte, 50+rng.IntN(500))
				for k := range b {
					b[k] = byte(rng.IntN(256))
				}
				nc.Write(b)
			case 2: // the client announces a large frame and does not send it
				must.OK(t, w.Connect(wire.NewSession(4000)))
				nc.Write(binary.BigEndian.AppendUint32(nil, 1_000_000))
			case 3: // the client requests much data and reads nothing
				must.OK(t, w.Connect(wire.NewSession(4000)))
				var b []byte
				for xid := range int32(50) {
					b = wire.AppendRequest(b, xid, jute.OpGetData, wire.PathWatch("/n", false))
				}
				nc.Write(b)
			case 4: // the client sends random bytes after a valid handshake
				must.OK(t, w.Connect(wire.NewSession(4000)))
				w.SendXid(1, jute.OpMulti, []byte{0, 0, 0, 1, 0, 255, 255, 255, 255})
			}
			if i%50 == 49 {
				asked := time.Now()
				must.Get(good.SetData("/n", nil, -1))(t)
				if d := time.Since(asked); d > time.Second {
					t.Errorf("G25: a good client waited for %v", d)
				}
				must.Get(good.SetData("/n", make([]byte, 100_000), -1))(t)
			}
		}
		stop := make(chan struct{})
		go ping(good, 5*time.Second, stop)
		time.Sleep(3 * time.Minute)
		close(stop)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+5 {
			t.Errorf("G25: %d goroutines, there were %d", after, before)
		}
		for id := range c.ids() {
			c.server(id).Node().View(func(s *state.State) {
				if n := s.Sessions().Len(); n > 1 {
					t.Errorf("G25: %d sessions left", n)
				}
			})
		}
	})
}
