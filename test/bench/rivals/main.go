// Command rivals measures locks on zlockd beside locks on ZooKeeper, etcd and Redis, and draws
// the results. On three servers of zlockd, ZooKeeper and etcd it measures keys: inserts, YCSB, sessions
// that come and go, and the death of the leader. It is a module of its own, so that zlockd does not
// depend on their clients and the plotting library.
//
//	cd test/bench/rivals && go run . -out ../../../docs/benchmarks
//
// Every server syncs before it answers. All run at once on this
// machine, and rounds that go around the services take each figure. The command leaves out
// services that are not installed, and says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	keys     int
	fixed    int
}

// wants reports whether a service was asked for.
func (s *settings) wants(name string) bool {
	return s.only == "" || slices.Contains(strings.Split(s.only, ","), name)
}

func main() {
	var s settings
	var most int
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each figure")
	flag.DurationVar(&s.duration, "duration", time.Second, "measured time of a round")
	flag.IntVar(&most, "sessions", 8000, "idle sessions at the most, four steps")
	flag.StringVar(&s.out, "out", "", "directory for the drawings; default none")
	flag.StringVar(&s.only, "only", "", "comma list of services; default all that are installed")
	flag.StringVar(&s.parts, "parts", "keys,locks", "what is measured: keys on three servers, locks on one")
	flag.StringVar(&s.rows, "rows", "", "of keys, only the rows with this in their title")
	flag.IntVar(&s.keys, "keys", 100_000, "keys of YCSB")
	flag.IntVar(&s.fixed, "rate", 2000, "operations a second of YCSB A at a fixed rate")
	flag.Parse()
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
	var services []service
	defer func() {
		for _, v := range services {
			v.close()
		}
	}()
	fmt.Printf("%s, %s. %d rounds of %v, services in turn; medians.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), measure.Machine(), s.rounds, s.duration)
	if strings.Contains(s.parts, "keys") {
		names, clusters := startClusters(s, dir)
		err := errors.New("no cluster could be started")
		if len(clusters) > 0 {
			err = measureKeys(s, names, clusters)
		}
		for _, c := range clusters {
			c.close()
		}
		if err != nil {
			return err
		}
	}
	if !strings.Contains(s.parts, "locks") {
		return nil
	}
	for _, k := range kinds {
		if !s.wants(k.name) {
			continue
		}
		v, err := k.start(filepath.Join(dir, k.name))
		if err != nil {
			fmt.Printf("* %s: left out: %v\n", k.name, err)
			continue
		}
		services = append(services, v)
		fmt.Printf("* %s: %s\n", k.name, v.settings())
	}
	if len(services) == 0 {
		return fmt.Errorf("no service could be started")
	}
	memory, err := measureMemory(s, services) // before anything else makes the servers grow
	if err != nil {
		return err
	}
	cycles, err := measureCycles(s, services)
	if err != nil {
		return err
	}
	handoffs, err := measureHandoffs(s, services)
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

// measureCycles measures uncontended locks: each client takes and releases its own lock as
// fast as it can.
func measureCycles(s *settings, services []service) (series, error) {
	fmt.Printf("\n| clients | service | lock cycles/s | cycle p50 ms |\n|---|---|---|---|\n")
	out := series{}
	for _, n := range []int{1, 4, 16, 64} {
		lockers := make([][]locker, len(services))
		for i, v := range services {
			for k := range n {
				l, err := v.locker(fmt.Sprintf("/own-%d-%d", n, k))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.name(), err)
				}
				lockers[i] = append(lockers[i], l)
			}
		}
		rates, lats := make([][]float64, len(services)), make([][]float64, len(services))
		for range s.rounds {
			for i, v := range services {
				rate, lat, err := cycle(lockers[i], s.duration)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.name(), err)
				}
				rates[i], lats[i] = append(rates[i], rate), append(lats[i], lat)
			}
		}
		for i, v := range services {
			for _, l := range lockers[i] {
				l.close()
			}
			fmt.Printf("| %d | %s | %s | %s |\n", n, v.name(), span(rates[i], 0), span(lats[i], 2))
			out[v.name()] = append(out[v.name()], point{measure.Median(rates[i]), measure.Median(lats[i])})
		}
	}
	return out, nil
}

// cycle runs the lockers for d. It returns cycles per second and the median of one cycle in
// ms.
func cycle(lockers []locker, d time.Duration) (rate, lat float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), d+30*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all []float64
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for _, l := range lockers {
		wg.Go(func() {
			var took []float64
			for {
				at := time.Now()
				if !at.Before(end) {
					break
				}
				e := l.lock(ctx)
				if e == nil {
					e = l.unlock(ctx)
				}
				if e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
					return
				}
				took = append(took, float64(time.Since(at).Microseconds())/1e3)
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no cycle was completed in %v", d)
	}
	if err != nil {
		return 0, 0, err
	}
	return float64(len(all)) / d.Seconds(), measure.Median(all), nil
}

// measureHandoffs measures how long after a release the next of n waiters has the lock.
func measureHandoffs(s *settings, services []service) (series, error) {
	fmt.Printf("\n| waiters | service | hand-off p50 ms |\n|---|---|---|\n")
	out := series{}
	for _, n := range []int{1, 10, 100} {
		for _, v := range services {
			var lats []float64
			for range s.rounds {
				lat, err := handoff(v, n, s.duration)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.name(), err)
				}
				lats = append(lats, lat)
			}
			fmt.Printf("| %d | %s | %s |\n", n, v.name(), span(lats, 2))
			out[v.name()] = append(out[v.name()], point{float64(n), measure.Median(lats)})
		}
	}
	return out, nil
}

// handoff lets n+1 clients contend for one lock for d. It returns the median time from a
// release to the next hold in ms.
func handoff(v service, n int, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	defer cancel()
	var lockers []locker
	defer func() {
		for _, l := range lockers {
			l.close()
		}
	}()
	for range n + 1 {
		l, err := v.locker("/shared")
		if err != nil {
			return 0, err
		}
		lockers = append(lockers, l)
	}
	var mu sync.Mutex // guards the next three
	var released time.Time
	var took []float64
	var failed error
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for _, l := range lockers {
		wg.Go(func() {
			for time.Now().Before(end) {
				err := l.lock(ctx)
				mu.Lock()
				if err == nil && !released.IsZero() {
					took = append(took, float64(time.Since(released).Microseconds())/1e3)
				}
				released = time.Now()
				mu.Unlock()
				if err == nil {
					err = l.unlock(ctx)
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return 0, failed
	}
	if len(took) == 0 {
		return 0, fmt.Errorf("no client was handed the lock in %v", d)
	}
	return measure.Median(took), nil
}

// measureMemory measures how much memory idle sessions add to a server.
func measureMemory(s *settings, services []service) (series, error) {
	fmt.Printf("\n| idle sessions | service | resident MB | KB/session |\n|---|---|---|---|\n")
	out := series{}
	for _, v := range services {
		before := v.memory()
		var open []func()
		for _, n := range s.sessions {
			for len(open) < n {
				end, err := v.session()
				if err != nil {
					return nil, fmt.Errorf("%s: session %d: %w", v.name(), len(open)+1, err)
				}
				if end == nil {
					break // it has no sessions
				}
				open = append(open, end)
			}
			if len(open) < n {
				break
			}
			time.Sleep(3 * time.Second) // time to collect garbage
			now := v.memory()
			fmt.Printf("| %d | %s | %.0f | %.1f |\n", n, v.name(), now/1024, (now-before)/float64(n))
			out[v.name()] = append(out[v.name()], point{float64(n), now / 1024})
		}
		for _, end := range open {
			end()
		}
	}
	return out, nil
}
