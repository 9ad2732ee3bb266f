package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/history"
)

var (
	longFlag = flag.Bool("sim.long", false, "make each history a long day: many hours with few requests, and "+
		"quiet hours between groups of faults")
	dayFlag = flag.Duration("sim.day", 0, "the length of a long day; 0: six to 24 hours, as the seed says")
)

// TestLongDayG1ToG22 runs some minutes of a long day. Whole days take minutes each: make sim-long.
func TestLongDayG1ToG22(t *testing.T) {
	if exact {
		t.Skip("make sim-long")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) { simHistory(t, seed, newDay(seed, 8*time.Minute)) })
}

// day is the plan of a long history. Times with many or few faults alternate with quiet times, in which the
// cluster must recover completely. Once in twelve hours a quiet time is a night, in which the clients rest
// too.
type day struct {
	rng    *rand.Rand
	length time.Duration
	spells []spell
	begin  time.Time
}

// spell is a part of a day.
type spell struct {
	from, to time.Duration
	pause    time.Duration // the longest time between two faults; 0: no faults
	gentle   bool          // no fault ends a server, so that servers live for hours
	night    bool
}

// dayLength returns the length of a seed's day.
func dayLength(seed uint64) time.Duration {
	if *dayFlag > 0 {
		return *dayFlag
	}
	return 6 * time.Hour * time.Duration(1+rand.New(rand.NewPCG(seed, 8)).IntN(4))
}

// newDay plans the day of a seed.
func newDay(seed uint64, length time.Duration) *day {
	d := &day{rng: rand.New(rand.NewPCG(seed, 7)), length: length}
	between := func(least, most time.Duration) time.Duration { // a short day has short spells
		most = min(most, length/4)
		least = min(least, most/2)
		return least + time.Duration(d.rng.Int64N(int64(most-least)))
	}
	night := between(0, 9*time.Hour)
	at := time.Duration(0)
	add := func(s spell, takes time.Duration) {
		s.from, s.to = at, min(at+takes, length)
		if at = s.to; s.from < s.to {
			d.spells = append(d.spells, s)
		}
	}
	for k := d.rng.IntN(2); at < length; k++ {
		gentle := d.rng.IntN(2) == 0
		if k%2 == 0 {
			add(spell{pause: 8 * time.Second, gentle: gentle}, between(4*time.Minute, 15*time.Minute))
		} else {
			add(spell{pause: 100 * time.Second, gentle: gentle}, between(20*time.Minute, time.Hour))
		}
		if at > night && length > 2*time.Hour {
			add(spell{night: true}, between(2*time.Hour, 5*time.Hour))
			night += 12 * time.Hour
		} else {
			add(spell{}, between(10*time.Minute, 50*time.Minute))
		}
	}
	return d
}

// calmTimeout returns the session timeout of a client that rests.
func calmTimeout(rng *rand.Rand) time.Duration { return time.Duration(10+rng.IntN(20)) * time.Second }

// The function that rests() returns says how long a client rests before its next request: not at all within a
// burst of requests, seconds or minutes between two bursts, and all night long.
func (d *day) rests(rng *rand.Rand) func() time.Duration {
	left := 0
	return func() time.Duration {
		if left > 0 {
			left--
			return 0
		}
		left = rng.IntN(12)
		upTo := func(most time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(most))) }
		pause := 20 * time.Minute
		switch k := rng.IntN(10); {
		case k < 4:
			pause = 10 * time.Second
		case k < 8:
			pause = 2 * time.Minute
		}
		now := time.Since(d.begin)
		for _, s := range d.spells {
			if s.night && s.from <= now && now < s.to {
				return s.to - now + upTo(10*time.Minute)
			}
		}
		return upTo(pause)
	}
}

// The function that stays() returns says how long to wait between two changes of members.
func (d *day) stays(most time.Duration) func() time.Duration {
	rng := rand.New(rand.NewPCG(uint64(most), d.rng.Uint64()))
	return func() time.Duration { return time.Duration(rng.Int64N(int64(min(most, d.length/3)))) }
}

// ends are the faults that end a server.
var ends = []string{"crash", "crash the leader", "long away", "orderly restart", "power loss of all",
	"small disk", "failing reads", "flipped bits"}

// runDay makes the faults of a long day, and demands after each group of them that all servers recover and
// are equal.
func (c *cluster) runDay(d *day, harm []fault, rec *observed) *faults {
	f := newFaults(c)
	gentle := slices.DeleteFunc(slices.Clone(harm), func(k fault) bool { return slices.Contains(ends, k.name) })
	for _, s := range d.spells {
		until := func() time.Duration { return s.to - time.Since(d.begin) }
		switch {
		case until() <= 0:
		case s.pause > 0 && s.gentle:
			f.during(until(), s.pause, gentle)
		case s.pause > 0:
			f.during(until(), s.pause, harm)
		default:
			f.mend()
			c.recovers()
			c.compare(&rec.Recorder)
			f.quiet(until)
			c.recovers()
			c.compare(&rec.Recorder)
			c.littleIsLeft()
		}
	}
	f.mend()
	return f
}

// quiet() waits until a quiet time is over. In some quiet times one server is away all the time. Such an
// absence counts as a fault and has a number, so -sim.only can leave it out.
func (f *faults) quiet(left func() time.Duration) {
	id, away := uint32(1+f.cluster.rng.IntN(3)), f.cluster.rng.IntN(4) == 0
	only := f.only.of("f")
	if d := left(); away && d > time.Minute && (only == nil || only(f.drawn["f"])) {
		if f.away(id, d); !f.idle {
			f.took("long away")
		}
	}
	f.drawn["f"]++
	for left() > 0 {
		time.Sleep(min(left(), 10*time.Minute))
		collect()
	}
	f.wg.Wait()
}

// compare() records the digests that each server remembers: the states of one zxid must be equal. The present
// states may differ, because a server that lags may lack an attach, which has no zxid.
func (c *cluster) compare(rec *history.Recorder) {
	for id := range c.ids() {
		i := c.server(id)
		if i == nil {
			continue // recovers() has reported this
		}
		i.Node().View(func(s *state.State) {
			for _, d := range s.Digests() {
				rec.Add(history.Record{Digest: &history.Digest{Server: fmt.Sprint(id), Zxid: d.Zxid, Sum: d.Sum}})
			}
		})
	}
}

// littleIsLeft fails if servers that run for hours leave goroutines, connections or files behind.
func (c *cluster) littleIsLeft() {
	age := time.Since(c.day.begin)
	if n := runtime.NumGoroutine(); n > 400 { // four servers, 16 clients
		c.t.Errorf("after %v there are %d goroutines", age, n)
	}
	c.net.mu.Lock()
	if n := len(c.net.pipes); n > 200 {
		c.t.Errorf("after %v there are %d ends of connections", age, n)
	}
	c.net.mu.Unlock()
	most := int64(16 << 20)
	if c.set.bulky {
		most = 128 << 20
	}
	for id := range c.ids() {
		if n := c.disk(id).files.Used(); n > most {
			c.t.Errorf("after %v the disk of server %d holds %d bytes", age, id, n)
		}
	}
}

// longest holds the longest times of a run, in hours.
type longest struct{ Session, Server, Watch float64 }

func (l longest) or(o longest) longest {
	return longest{max(l.Session, o.Session), max(l.Server, o.Server), max(l.Watch, o.Watch)}
}

// longestOf finds the session that lived longest, from its first to its last answer, and the watch that
// waited longest for its event.
func longestOf(records []history.Record) (l longest) {
	type watch struct {
		session int64
		path    string
	}
	began, of, set := map[int64]time.Duration{}, map[int]int64{}, map[watch]time.Duration{}
	for _, r := range records {
		switch {
		case r.Connect != nil:
			of[r.Connect.Conn] = r.Connect.Session
			if r.Connect.New {
				began[r.Connect.Session] = r.Connect.End
			}
		case r.Op != nil && !r.Op.Unknown:
			l.Session = max(l.Session, (r.Op.End - began[r.Op.Session]).Hours())
			w := watch{r.Op.Session, r.Op.Path}
			if _, waits := set[w]; r.Op.Watch && !waits && (r.Op.Code == jute.OK || r.Op.Op == jute.OpExists) {
				set[w] = r.Op.End
			}
		case r.Event != nil:
			w := watch{of[r.Event.Conn], r.Event.Path}
			if at, waits := set[w]; waits {
				l.Watch = max(l.Watch, (r.Event.At - at).Hours())
				delete(set, w)
			}
		}
	}
	return l
}
