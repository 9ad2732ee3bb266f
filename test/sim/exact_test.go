//go:build exact

package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/cryptotest"
	"time"
	_ "unsafe" // required by go:linkname

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim/reached"
)

var (
	waysFlag = flag.Int("sim.ways", 0, "how an exact run chooses goroutines: 0 as usual, 1 any, 2 by ranks, "+
		"3 as usual with delays, -1 one of the four, -2 one of the last three, as the seed says")
	aloneFlag  = flag.Bool("sim.alone", false, "make an exact run in this process")
	twiceFlag  = flag.Bool("sim.twice", false, "make each exact run twice, and want both equal")
	ledgerFlag = flag.String("sim.ledger", "", "a file to append a line to that tells what was run")
	reachFlag  = flag.Float64("sim.reach", 20, "simulated hours after which all rare states must have been "+
		"reached")
	farmFlag = flag.String("sim.farm", "", "a folder for the output of seeds that fail; the others go on")
)

// exact is true in a build in which a run repeats bit for bit and sums up its events.
const exact = true

// setSeed is defined in the runtime by test/sim/overlay.
//
//go:linkname setSeed
func setSeed(seed uint64, ways int)

// runtimeState is defined in the runtime by test/sim/overlay.
//
//go:linkname runtimeState
func runtimeState(*[11]uint64)

// collectGarbage is defined in the runtime by test/sim/overlay.
//
//go:linkname collectGarbage
func collectGarbage()

// waitOften is defined in the runtime by test/sim/overlay.
//
//go:linkname waitOften
func waitOften(bool)

// setHost, holdTimers and heldUp are defined in the runtime by test/sim/overlay, too.
//
//go:linkname setHost
func setHost(id uint32) (was uint32)

//go:linkname holdTimers
func holdTimers(id uint32, ns int64)

//go:linkname heldUp
func heldUp(id uint32) int

func init() {
	asHost = setHost
	stopTimersOf, timersHeldUp = func(id uint32, d time.Duration) { holdTimers(id, int64(d)) }, heldUp
	collect, often = collectGarbage, waitOften
	var now [11]uint64
	runtimeNow = func() []uint64 {
		runtimeState(&now)
		return now[:]
	}
}

// exactly() prepares the process for a run that repeats bit for bit.
func exactly(t *testing.T, seed uint64) {
	if os.Getenv("ZLOCKD_SIM_ALONE") == "" {
		t.Fatal("run it without -sim.alone: that makes a process which is fit for an exact run")
	}
	runtime.MemProfileRate = 0 // turn off the memory samples, which are taken at random
	cryptotest.SetGlobalRandom(t, seed)
	setSeed(seed, waysOf(seed))
}

// waysOf() returns how a seed's run chooses goroutines.
func waysOf(seed uint64) int {
	switch *waysFlag {
	case -1:
		return int(seed % 4)
	case -2:
		return int(1 + seed%3)
	}
	return *waysFlag
}

// apart() runs each seed in a process of its own, so that no run can affect the next. As many processes run
// in parallel as GOMAXPROCS says.
func apart(t *testing.T, seed uint64, n int) bool {
	if *aloneFlag {
		return false
	}
	if *farmFlag != "" {
		must.OK(t, os.MkdirAll(*farmFlag, 0o755))
	}
	c := &campaign{t: t, test: t.Name(), ledger: newEntry(seed), reached: map[string]int{}}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := range seeds {
				c.one(s)
			}
		})
	}
	for i := range n {
		if *farmFlag == "" && t.Failed() {
			break
		}
		seeds <- seed + uint64(i)
	}
	close(seeds)
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write()
	c.visited()
	if c.took > 0 && !*twiceFlag {
		t.Logf("%.0f simulated hours for each hour of a processor", c.hours/c.took.Hours())
	}
	return true
}

// visited() reports the rare states that the campaign did not reach. A campaign that was long enough fails if
// it missed a state that earlier campaigns reached.
func (c *campaign) visited() {
	list := strings.Split(string(must.Get(os.ReadFile("reached/reached.txt"))(c.t)), "\n")
	var first, never []string
	for _, s := range reached.States {
		switch before, now := slices.Contains(list, s.Name), c.reached[s.Name] > 0; {
		case now && !before:
			first = append(first, s.Name)
		case now:
		case before && c.hours >= *reachFlag && !*longFlag:
			c.t.Errorf("not reached in %.1f simulated hours: %s", c.hours, s.Name)
		default:
			never = append(never, s.Name)
		}
	}
	c.t.Logf("%d of %d rare states reached", len(c.reached), len(reached.States))
	if len(first) > 0 {
		c.t.Logf("reached for the first time, to be added to reached.txt:\n%s", strings.Join(first, "\n"))
	}
	if c.hours >= 1 && len(never) > 0 {
		c.t.Logf("not reached:\n%s", strings.Join(never, "\n"))
	}
}

// campaign makes the runs of many seeds and sums them up.
type campaign struct {
	t    *testing.T
	test string // name of the test that makes a run

	mu      sync.Mutex
	ledger  entry // sums up the runs since the last line of the ledger
	hours   float64
	took    time.Duration  // of processors, by the processes that made the runs
	reached map[string]int // how often all runs together reached each rare state
}

var reported = regexp.MustCompile(`report (\{.*\})`)

// one() makes a seed's run. With the option to repeat runs it makes two runs, which must be equal.
func (c *campaign) one(seed uint64) {
	r, text, ok := c.child(c.command(seed))
	if ok && *twiceFlag {
		again, more, fine := c.child(c.command(seed))
		if ok = fine && again.Trace == r.Trace && again.Runtime == r.Runtime; !ok {
			text += fmt.Sprintf("seed %d does not repeat: %s %s, then %s %s\n%s", seed, r.Trace, r.Runtime,
				again.Trace, again.Runtime, more)
			c.t.Logf("%s %s -sim.trace FILE shows each event with the state of the runtime", alone,
				strings.Join(c.command(seed), " "))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Hours > 0 {
		c.ledger.add(r)
		c.ledger.Ways[waysOf(seed)]++
		c.hours += r.Hours
		for state, n := range r.Reached {
			c.reached[state] += n
		}
	}
	if testing.Verbose() && *farmFlag == "" {
		c.t.Logf("seed %d: trace %s, %d requests, %d faults", seed, r.Trace, r.Answered, r.total())
	}
	if !ok {
		c.ledger.Found = append(c.ledger.Found, seed)
		c.t.Errorf("seed %d:\n%s", seed, text)
		c.keep(seed, text)
	}
	if *farmFlag != "" && (c.ledger.Seeds == 100 || *longFlag) {
		c.write()
		c.ledger = newEntry(seed + 1)
	}
}

// keep() writes the output of a failed seed to a file if -sim.farm names a folder.
func (c *campaign) keep(seed uint64, text string) {
	if *farmFlag == "" {
		return
	}
	path := filepath.Join(*farmFlag, fmt.Sprintf("seed-%d", seed))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Error(err)
	}
	fmt.Fprintf(os.Stderr, "%s seed %d failed: %s\n", time.Now().UTC().Format(time.DateTime), seed, path)
}

// alone is the environment of a process that makes one run. It must be set when the process starts, because
// a change of these settings inside the process would change the run.
const alone = "ZLOCKD_SIM_ALONE=1 GOMAXPROCS=1 GOGC=off " +
	"GODEBUG=asyncpreemptoff=1,profstackdepth=0,gcstoptheworld=2"

// command() returns the command that makes one run.
func (c *campaign) command(seed uint64) []string {
	line := []string{os.Args[0], "-test.run", "^" + c.test + "$", "-test.v", "-test.timeout", "5m",
		"-sim.alone", "-sim.seed", fmt.Sprint(seed), "-sim.hours", "0.01", "-sim.ways", fmt.Sprint(*waysFlag),
		"-sim.only", *onlyFlag}
	if *longFlag {
		line = append(line, "-sim.long", "-sim.day", fmt.Sprint(*dayFlag), "-test.timeout", "5h")
	}
	return line
}

// child() makes one run in a process of its own.
func (c *campaign) child(line []string) (r report, text string, ok bool) {
	// Limit the time from outside, too: the timer in the child does not fire if a goroutine never yields.
	limit := 6 * time.Minute
	if *longFlag {
		limit = 6 * time.Hour // a day takes hours if the campaign has a low priority
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // the stacks show where it hangs
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), strings.Fields(alone)...)
	out, err := cmd.CombinedOutput()
	if p := cmd.ProcessState; p != nil {
		c.mu.Lock()
		c.took += p.UserTime() + p.SystemTime()
		c.mu.Unlock()
	}
	if m := reported.FindSubmatch(out); m != nil {
		if bad := json.Unmarshal(m[1], &r); bad != nil {
			c.t.Error(bad)
		}
	}
	return r, string(out), err == nil
}

// write() appends a line to the ledger.
func (c *campaign) write() {
	if *ledgerFlag == "" || c.ledger.Seeds == 0 {
		return
	}
	f := must.Get(os.OpenFile(*ledgerFlag, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(c.t)
	c.ledger.Date = time.Now().UTC().Format(time.DateOnly)
	b := must.Get(json.Marshal(c.ledger))(c.t)
	if _, err := f.Write(append(b, '\n')); err != nil {
		c.t.Error(err)
	}
	must.OK(c.t, f.Close())
}

// entry is a line of the ledger.
type entry struct {
	Date     string
	Commit   string
	First    uint64 // the first seed
	Seeds    int
	Hours    float64 // simulated hours
	Answered int     // answered requests; the checker judged all of them
	Unknown  int
	Faults   map[string]int // faults that took effect, by kind
	Reached  map[string]int `json:",omitempty"` // how often the runs reached each rare state
	Found    []uint64       `json:",omitempty"` // seeds that failed; findings.jsonl explains each
	Ways     map[int]int    `json:",omitempty"` // how many seeds chose goroutines in each way
	Profile  string         `json:",omitempty"` // "long": days; else some busy minutes for each seed
	Longest  *longest       `json:",omitempty"` // the longest times, of the long profile only
}

func newEntry(first uint64) entry {
	e := entry{Commit: commit(), First: first, Faults: map[string]int{}, Reached: map[string]int{},
		Ways: map[int]int{}}
	if *longFlag {
		e.Profile, e.Longest = "long", new(longest)
	}
	return e
}

func (e *entry) add(r report) {
	e.Seeds++
	e.Hours += r.Hours
	e.Answered += r.Answered
	e.Unknown += r.Unknown
	if e.Longest != nil {
		*e.Longest = e.Longest.or(r.Longest)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		e.Faults[kind] += r.Faults[kind]
	}
	for state, n := range r.Reached {
		e.Reached[state] += n
	}
}

// commit is the short name of the commit that is checked out.
func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

func (r *report) total() (n int) {
	for _, k := range r.Faults {
		n += k
	}
	return n
}
