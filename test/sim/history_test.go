package sim

import (
	"encoding/json"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/history"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim/reached"
	"github.com/zlockd/zlockd/test/wire"
)

// TestSimHistoriesG1ToG22 runs random requests of many clients on whole servers, under faults of every kind,
// and judges what the clients saw. It also checks that sessions live if their clients keep trying (G10, G21),
// that the cluster recovers by itself (G22), that silent sessions end with all they own (G11, G12), and that
// all servers are equal (G9).
func TestSimHistoriesG1ToG22(t *testing.T) {
	runs(t, func(t *testing.T, seed uint64) {
		var d *day
		if *longFlag {
			d = newDay(seed, dayLength(seed))
		}
		synctest.Test(t, func(t *testing.T) { simHistory(t, seed, d) })
	})
}

// observed is a run's record.
type observed struct {
	history.Recorder
	begin time.Time
	conns atomic.Int64
}

func (o *observed) clock() time.Duration { return time.Since(o.begin) }

// simHistory makes the run of a seed. The run lasts for the day d or, if d is nil, for some busy minutes.
func simHistory(t *testing.T, seed uint64, d *day) {
	oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
	set := drawSettings(rand.New(rand.NewPCG(seed, 4)))
	set.bulky = seed%5 == 4
	set.tickets = seed%4 == 3
	c := newCluster(t, seed, set)
	rec := &observed{begin: time.Now()}
	c.day = d
	if d != nil {
		d.begin = rec.begin
	}
	c.rec = rec
	c.makeRoot(rec)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var workers []*Client
	for k := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(100+k)))
		host := fmt.Sprintf("c%d", k)
		w := &Client{Name: host, User: k, Dial: c.dial(host, rng),
			Timeout: time.Duration(4+rng.IntN(10)) * time.Second, Pause: 200 * time.Millisecond,
			Clock: rec.clock, Record: &rec.Recorder, Conns: func() int { return int(rec.conns.Add(1)) },
			Rand: rng, Seed: seed<<8 + uint64(k), Only: c.only.of(fmt.Sprint(k))}
		if d != nil {
			w.Timeout, w.Rest = calmTimeout(rng), d.rests(rng)
		}
		workers = append(workers, w)
		if set.bulky {
			w.Bulk = rand.New(rand.NewPCG(seed, uint64(200+k)))
		}
		wg.Go(func() { w.Run(stop) })
	}
	turns := c.contenders(rec, &wg, stop)
	reads, apart, stay := time.Second, always(10*time.Second), always(20*time.Second)
	if d != nil {
		reads, apart, stay = 5*time.Second, d.stays(2*time.Hour), d.stays(3*time.Hour)
	}
	calm := []*steady{{c: c, host: "s0", reads: reads}, {c: c, host: "s1"}, {c: c, host: "s2"}}
	for k, s := range calm {
		s.at = uint32(k)
		wg.Go(func() { s.run(stop) })
	}
	still := make(chan struct{})
	rounds := 0
	changing := seed%3 == 0
	var members sync.WaitGroup
	if changing {
		members.Go(func() { rounds = c.members(still, apart, stay) })
	}
	harm := slices.Concat(kinds, backupKinds, strayKinds)
	if set.bulky {
		harm = slices.Concat(harm, bulkyKinds)
	}
	var f *faults
	if d != nil {
		f = c.runDay(d, harm, rec)
	} else {
		f = c.runFaults(harm)
	}
	close(still)
	c.recovers()
	members.Wait()
	time.Sleep(20 * time.Second)
	close(stop)
	wg.Wait()
	if *probesFlag && (d == nil || d.length > time.Hour) {
		c.probes()
	}
	time.Sleep(45 * time.Second) // longer than any session waits for its client
	c.allEqual(&rec.Recorder)
	c.shutDown()
	for k, w := range workers {
		f.drawn[fmt.Sprint(k)] = w.drawn
	}
	for _, x := range turns {
		f.drawn[x.name] = x.drawn
	}
	c.judge(rec, f, fmt.Sprintf("%d changes of membership, %+v", rounds, c.set))
	for _, s := range calm {
		if s.served <= int(c.length().Minutes())*2/3 {
			t.Errorf("%s was answered %d times", s.host, s.served)
		}
	}
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// length() returns for how long faults happen in a run.
func (c *cluster) length() time.Duration {
	if c.day != nil {
		return c.day.length
	}
	return runLength()
}

// few() reports whether a run had too few requests, events, turns or draws for its length.
func (c *cluster) few(answered, events, turns, draws int) bool {
	n := int(c.length().Minutes())
	if c.day != nil && n < 60 {
		return answered == 0 // in so short a day the clients may rest most of the time
	}
	if c.day != nil {
		return answered < 40*n || events < 3*n || c.set.tickets && (turns < 4*n || draws < n)
	}
	return answered < 170*n || events < 8*n || c.set.tickets && (turns < 30*n || draws < 20*n)
}

// makeRoot creates the nodes below which the clients work, and records that.
func (c *cluster) makeRoot(rec *observed) {
	nc := must.Get(c.dialTo("c0", 1))(c.t)
	w := wire.New(nc)
	defer w.Close()
	must.OK(c.t, w.Connect(wire.NewSession(30000)))
	rec.Add(history.Record{Connect: &history.Connect{Client: "root", Session: w.Session.ID, New: true,
		End: rec.clock()}})
	start := rec.clock()
	for k, path := range []string{Root, guarded} {
		must.Get(w.Create(path, nil, jute.FlagPersistent))(c.t)
		rec.Add(history.Record{Op: &history.Op{Client: "root", Session: w.Session.ID, Seq: 1 + k, Start: start,
			End: rec.clock(), Zxid: w.Zxid,
			Step: history.Step{Op: jute.OpCreate, Path: path, Created: path}}})
		start = rec.clock()
	}
	w.CloseSession()
}

// recovers() reports an error unless a server serves 10 s after the last fault, and all servers serve soon
// afterwards.
func (c *cluster) recovers() {
	healed := time.Now()
	for served := false; !served; {
		for id := range c.ids() {
			if ok, _ := c.server(id).Node().Serving(); ok {
				served = true
			}
		}
		if time.Since(healed) > 10*time.Second {
			c.t.Error("G22: no server serves 10 s after the last fault")
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for id := range c.ids() {
		c.ready(id, 30*time.Second-time.Since(healed))
	}
}

// allEqual compares the servers after all clients have been silent for longer than their session timeouts.
func (c *cluster) allEqual(rec *history.Recorder) {
	c.compare(rec)
	for id := range c.ids() {
		if ok, why := c.server(id).Node().Serving(); !ok {
			c.t.Errorf("G22: server %d does not serve long after the last fault: %s", id, why)
		}
		c.server(id).Clients.WatchScan(func(path string, session int64) bool {
			c.t.Errorf("G12: server %d has a watch on %s for session %#x, which must have ended", id, path,
				session)
			return true
		})
		c.server(id).Node().View(func(s *state.State) {
			rec.Add(history.Record{Digest: &history.Digest{Server: fmt.Sprint(id), Zxid: s.Zxid(), Sum: s.Digest()}})
			if n := s.Sessions().Len(); n > 0 {
				c.t.Errorf("G11: server %d has %d sessions, long after the last client was heard from", id, n)
			}
			for session := range s.Tree().Owners() {
				nodes := s.Tree().SomeEphemeralsOf(session, 10)
				c.t.Errorf("G12: server %d has %v of session %#x, which must have ended", id, nodes, session)
			}
		})
	}
}

// judge() checks the record. A history that shows a violation is kept.
func (c *cluster) judge(rec *observed, f *faults, about string) {
	records := rec.Records()
	answered, unknown, events, expired, turns, draws := 0, 0, 0, 0, 0, 0
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
		case r.Turn != nil && r.Turn.Says != history.SaysNothing:
			turns++
		case r.Draw != nil:
			draws++
		}
	}
	c.t.Logf("%d requests answered, %d unknown, %d events, %d sessions expired, %d turns at locks, "+
		"%d draws, %d faults, %s", answered, unknown, events, expired, turns, draws, f.total(), about)
	if c.only == nil && c.few(answered, events, turns, draws) {
		c.t.Errorf("too little happened to judge")
	}
	if c.trace != nil {
		for _, r := range records {
			c.trace.add("history", r.String(), "", nil)
		}
	}
	told := report{Seed: c.seed, Trace: c.trace.String(), Runtime: fmt.Sprintf("%x", runtimeNow()),
		Hours: rec.clock().Hours(), Answered: answered, Unknown: unknown, Faults: f.count, Drawn: f.drawn,
		Reached: reached.Counts()}
	if c.day != nil {
		told.Longest = longestOf(records).or(longest{Server: c.lived.Hours()})
		c.t.Logf("%+v hours", told.Longest)
	}
	c.t.Logf("report %s", must.Get(json.Marshal(told))(c.t))
	if *traceFlag != "" {
		must.OK(c.t, os.WriteFile(*traceFlag, c.trace.log, 0o644))
	}
	from, to, most := c.net.Calls()
	c.t.Logf("%s calls %s %d times within a second, and no other more often", from, to, most)
	if most > 100 {
		c.t.Errorf("%s calls %s %d times within a second", from, to, most)
	}
	bad := history.Check(records, history.Options{Root: Root, Linearizable: c.set.linear})
	for _, v := range bad {
		c.t.Error(v)
	}
	if dir := os.Getenv("ZLOCKD_SIM_HISTORIES"); dir != "" && len(bad) > 0 {
		path := filepath.Join(dir, fmt.Sprintf("seed-%d-%d", c.seed, os.Getpid()))
		if err := history.Save(path, records); err != nil {
			c.t.Error(err)
		}
		c.t.Logf("history kept in %s: go test ./test/history -run SavedHistory -history.file %s", path, path)
	}
}
