// Command rivals measures locks on zlockd beside locks on ZooKeeper, etcd and Redis, and draws the results.
// On three servers of zlockd, ZooKeeper and etcd it measures keys: inserts, YCSB, sessions that come and go,
// and the death of the leader. With -parts ways it makes one table of all ways to lock, also with PostgreSQL
// and flock: how long a lock and a hand-off take, and how long clients wait after a holder or a server is
// killed.
//
// The command is a module of its own, so that zlockd does not depend on the clients of these services and on
// the plotting library.
//
//	cd test/bench/rivals && go run . -out ../../../docs/benchmarks
//
// Every server syncs before it answers. All servers run at once on this machine, and the services take turns
// in each measurement. The command leaves out services that are not installed, and says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
)

type settings struct {
	rounds   int
	duration time.Duration
	sessions []int
	out      string
	only     string
	parts    string
	rows     string
	write    string
	warm     time.Duration
	keys     int
	fixed    int
}

func main() {
	var s settings
	var most int
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each figure")
	flag.DurationVar(&s.duration, "duration", time.Second, "measured time of a round")
	flag.IntVar(&most, "sessions", 8000, "idle sessions at the most, four steps")
	flag.StringVar(&s.out, "out", "", "directory for the drawings; default none")
	flag.StringVar(&s.only, "only", "", "comma list of services; default all that are installed")
	flag.StringVar(&s.parts, "parts", "keys,locks",
		"what is measured: keys on three servers, locks on one, ways to lock")
	flag.StringVar(&s.write, "write", "", "page for the table of the ways, between its marks; default none")
	flag.DurationVar(&s.warm, "warm", 10*time.Second,
		"least time that a service does the same before a figure of it counts")
	hold := flag.String("hold", "", "take the lock of this way, say so and wait: the holder that is killed")
	addr := flag.String("addr", "", "where -hold takes it")
	path := flag.String("path", "", "of which name")
	flag.StringVar(&s.rows, "rows", "", "of keys, only the rows with this in their title")
	flag.IntVar(&s.keys, "keys", 100_000, "keys of YCSB")
	flag.IntVar(&s.fixed, "rate", 2000, "operations a second of YCSB A at a fixed rate")
	flag.Parse()
	if *hold != "" {
		if err := holdUntilKilled(*hold, *addr, *path); err != nil {
			fmt.Fprintln(os.Stderr, "rivals:", err)
			os.Exit(1)
		}
		return
	}
	for i := range 4 {
		s.sessions = append(s.sessions, most*(i+1)/4)
	}
	if err := run(&s); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

func run(s *settings) error {
	dir, err := os.MkdirTemp("", "zlockd-rivals-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %s. %d rounds of %v, services in turn; medians.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), measure.Machine(), s.rounds, s.duration)
	if strings.Contains(s.parts, "keys") {
		clusters := startAll(s, dir, 3)
		err := errors.New("no cluster could be started")
		if len(clusters) > 0 {
			err = measureKeys(s, clusters)
		}
		for _, c := range clusters {
			c.Close()
		}
		if err != nil {
			return err
		}
	}
	if strings.Contains(s.parts, "ways") {
		if err := measureWays(s, dir); err != nil {
			return err
		}
	}
	if !strings.Contains(s.parts, "locks") {
		return nil
	}
	services := startAll(s, dir, 1)
	if len(services) == 0 {
		return errors.New("no service could be started")
	}
	for _, v := range services {
		defer v.Close()
		fmt.Printf("* %s: %s\n", v.name, v.about(v.addr(0)))
	}
	memory, err := measureMemory(s, services) // first, because later measurements make the servers grow
	if err != nil {
		return err
	}
	own := func(n int) (paths []string) {
		for i := range n {
			paths = append(paths, fmt.Sprintf("/own-%d-%d", n, i))
		}
		return paths
	}
	cycles, err := measureLocks(s, services, "clients | service | lock cycles/s | cycle p50 ms",
		[]int{1, 4, 16, 64}, own, cycle)
	if err != nil {
		return err
	}
	handoffs, err := measureLocks(s, services, "waiters | service | hand-off p50 ms", []int{1, 10, 100},
		func(n int) []string { return slices.Repeat([]string{"/shared"}, n+1) }, handoff)
	if err != nil {
		return err
	}
	if s.out == "" {
		return nil
	}
	return drawAll(s.out, drawings(cycles, handoffs, memory))
}

// point is one figure of a service: the position on the axis, and the value.
type point struct{ x, y float64 }

// series are the points of each service, by its name.
type series map[string][]point

func span(v []float64, digits int) string {
	slices.Sort(v)
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, measure.Median(v), digits, v[0], digits, v[len(v)-1])
}

// measureLocks calls run() in rounds for each service, with one locker for each path. It prints a row for
// each size and service, with the medians of the figures. In the series that it returns, y is the last figure
// of run(), and x is the figure before that. If run() returns only one figure, x is the size.
func measureLocks(s *settings, services []servers, head string, sizes []int, paths func(n int) []string,
	run func(lockers []locker, d time.Duration) ([]float64, error)) (series, error) {
	fmt.Printf("\n| %s |\n%s|\n", head, strings.Repeat("|---", strings.Count(head, "|")+1))
	out := series{}
	for _, n := range sizes {
		lockers, figures := make([][]locker, len(services)), make([][][]float64, len(services))
		for i, v := range services {
			for _, path := range paths(n) {
				l, err := v.locker(context.Background(), v.addr(0), path, time.Minute)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.name, err)
				}
				lockers[i] = append(lockers[i], l)
			}
		}
		for i, v := range services {
			err := s.warmUp(fmt.Sprintf("%d, %s", n, v.name), func() (float64, error) {
				got, err := run(lockers[i], s.duration)
				return got[0], err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
		}
		for range s.rounds {
			for i, v := range services {
				got, err := run(lockers[i], s.duration)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.name, err)
				}
				figures[i] = append(figures[i], got)
			}
		}
		for i, v := range services {
			for _, l := range lockers[i] {
				l.close()
			}
			at, cells := point{y: float64(n)}, ""
			for k := range figures[i][0] {
				var values []float64
				for _, f := range figures[i] {
					values = append(values, f[k])
				}
				at = point{at.y, measure.Median(values)}
				digits := 2
				if at.y >= 100 {
					digits = 0
				}
				cells += " | " + span(values, digits)
			}
			fmt.Printf("| %d | %s%s |\n", n, v.name, cells)
			out[v.name] = append(out[v.name], at)
		}
	}
	return out, nil
}

// cycle() runs lockers, each with a lock of its own, for d: each takes and releases its lock as fast as it
// can. cycle() returns the cycles per second, and the median of one cycle in ms.
func cycle(lockers []locker, d time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d+30*time.Second)
	defer cancel()
	end := time.Now().Add(d)
	took, err := atOnce(len(lockers), func(i int, done func(time.Duration)) error {
		for at := time.Now(); at.Before(end); at = time.Now() {
			if err := lockers[i].lock(ctx); err != nil {
				return err
			}
			if err := lockers[i].unlock(ctx); err != nil {
				return err
			}
			done(time.Since(at))
		}
		return nil
	})
	return []float64{float64(len(took)) / d.Seconds(), measure.Median(took)}, err
}

// handoff() lets all lockers contend for one lock for d. A locker that has released the lock contends again
// only when another locker has it, because some locks let their last holder take them again at once.
// handoff() returns the median time from a release to the next hold in ms.
func handoff(lockers []locker, d time.Duration) ([]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	defer cancel()
	var mu sync.Mutex // guards `released` and `passed`
	var released time.Time
	passed := make(chan struct{}) // closed when the next locker holds the lock
	end := time.Now().Add(d)
	took, err := atOnce(len(lockers), func(i int, done func(time.Duration)) error {
		for time.Now().Before(end) {
			if err := lockers[i].lock(ctx); err != nil {
				return err
			}
			mu.Lock()
			if !released.IsZero() {
				done(time.Since(released))
			}
			close(passed)
			next := make(chan struct{})
			passed, released = next, time.Now()
			mu.Unlock()
			if err := lockers[i].unlock(ctx); err != nil {
				return err
			}
			select {
			case <-next:
			case <-time.After(time.Until(end)):
			}
		}
		return nil
	})
	return []float64{measure.Median(took)}, err
}

// measureMemory measures how much memory idle sessions add to a server.
func measureMemory(s *settings, services []servers) (series, error) {
	fmt.Printf("\n| idle sessions | service | resident MB | KB/session |\n|---|---|---|---|\n")
	out := series{}
	for _, v := range services {
		if v.session == nil {
			continue
		}
		memory := func() float64 { return float64(measure.Resident(v.Servers[0].Pid())) / 1024 } // KB
		before := memory()
		var open []func()
		for _, n := range s.sessions {
			for len(open) < n {
				end, err := v.session(v.addr(0))
				if err != nil {
					return nil, fmt.Errorf("%s: session %d: %w", v.name, len(open)+1, err)
				}
				open = append(open, end)
			}
			time.Sleep(3 * time.Second) // time to collect garbage
			now := memory()
			fmt.Printf("| %d | %s | %.0f | %.1f |\n", n, v.name, now/1024, (now-before)/float64(n))
			out[v.name] = append(out[v.name], point{float64(n), now / 1024})
		}
		for _, end := range open {
			end()
		}
	}
	return out, nil
}
