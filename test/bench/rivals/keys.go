package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
)

// op is one operation on a key of 64 bytes.
type op struct {
	verb verb
	key  string // path of the key; shared keys are in directories of a thousand keys
}

type verb int

const (
	read verb = iota
	write
	insert
)

var record = []byte(strings.Repeat("0123456789abcdef", 4))

const keyConns, keyDepth = 16, 64

// workload draws the operations of one client. The client makes its own keys below `dir`.
type workload struct {
	reads, inserts float64 // shares of all operations; the other operations write
	zipf           *measure.Zipf
	n              int
	dir            string
	own            int
}

func (w *workload) next() op {
	if w.inserts == 1 {
		return w.add()
	}
	p, i := rand.Float64(), w.zipf.Next()
	switch {
	case p < w.inserts:
		return w.add()
	case p >= w.inserts+w.reads:
		return op{write, sharedKey(i, w.n)}
	case w.inserts > 0 && i < w.own: // the first ranks are the newest keys
		return op{read, w.dir + "/k" + strconv.Itoa(w.own-1-i)}
	case w.inserts > 0:
		i -= w.own
	}
	return op{read, sharedKey(i, w.n)}
}

func (w *workload) add() op {
	w.own++
	return op{insert, w.dir + "/k" + strconv.Itoa(w.own-1)}
}

// sharedKey names a key. Frequently used keys are not adjacent.
func sharedKey(i, n int) string {
	i = i * 7919 % n
	return "/keys-" + strconv.Itoa(i/1000) + "/k" + strconv.Itoa(i)
}

// slice is what a cluster did in one slice of time.
type slice struct {
	rate, cpu float64 // operations per second; processor time of all servers per operation, in µs
	took      []float64
}

func (s *slice) quantile(q float64) float64 {
	slices.Sort(s.took)
	return s.took[int(q*float64(len(s.took)-1))]
}

// measureKeys measures the workloads and prints a row for each.
func measureKeys(s *settings, clusters []servers) error {
	var names []string
	for _, c := range clusters {
		names = append(names, c.name)
	}
	fmt.Printf("\n| three servers | %s | zlockd / ZooKeeper, median (range) | "+
		"CPU µs/op of all servers: %s |\n|%s\n",
		strings.Join(names, " | "), strings.Join(names, " / "), strings.Repeat("---|", len(names)+3))
	for _, c := range clusters {
		if err := fillKeys(c, s.keys); err != nil {
			return err
		}
	}
	zipf := measure.NewZipf(s.keys)
	busy := func(reads, inserts float64) func(c servers, dir string) (slice, error) {
		return func(c servers, dir string) (slice, error) {
			return measureBusy(c, s.duration, func(i int) *workload {
				return &workload{reads, inserts, zipf, s.keys, fmt.Sprintf("%s-%d", dir, i), 0}
			})
		}
	}
	rate := func(v *slice) float64 { return v.rate }
	fixed := fmt.Sprintf("A at %d/s", s.fixed)
	for i, m := range []measurement{
		{"inserts/s", busy(0, 1), false, map[string]figure{"": rate}, false},
		{"YCSB A/s", busy(0.5, 0), false, map[string]figure{"": rate}, false},
		{"YCSB B/s", busy(0.95, 0), false, map[string]figure{"": rate}, false},
		{"YCSB C/s", busy(1, 0), false, map[string]figure{"": rate}, false},
		{"YCSB D/s", busy(0.95, 0.05), false, map[string]figure{"": rate}, false},
		{fixed, s.atFixedRate(zipf), true, map[string]figure{
			": p50 ms":   func(v *slice) float64 { return v.quantile(0.5) },
			": p99 ms":   func(v *slice) float64 { return v.quantile(0.99) },
			": p99.9 ms": func(v *slice) float64 { return v.quantile(0.999) }}, false},
		{"sessions/s that come, make a key, go", func(c servers, _ string) (slice, error) {
			return measureVisits(c, s.duration)
		}, false, map[string]figure{"": rate}, false},
		{"leader killed, ms to a new client's write", func(c servers, _ string) (slice, error) {
			return measureKill(c)
		}, true, map[string]figure{"": func(v *slice) float64 { return v.took[0] }}, true},
	} {
		if !strings.Contains(m.title, s.rows) {
			continue
		}
		rounds, err := m.inTurn(s, clusters, fmt.Sprintf("/own-%d", i))
		if err != nil {
			return err
		}
		for _, unit := range slices.Sorted(maps.Keys(m.figures)) {
			m.print(names, m.title+unit, m.figures[unit], rounds)
		}
	}
	return nil
}

// figure is one figure of a slice.
type figure func(*slice) float64

// measurement is what each cluster does in turn.
type measurement struct {
	title   string
	run     func(c servers, dir string) (slice, error)
	lower   bool // whether less is better
	figures map[string]figure
	cold    bool
}

// inTurn warms up all clusters, then measures them in rounds. It measures the death of a leader without a
// warm-up: the restarted server would be cold in any case.
func (m *measurement) inTurn(s *settings, clusters []servers, dir string) ([][]slice, error) {
	for k := 0; k < len(clusters) && !m.cold; k++ {
		n := 0
		err := s.warmUp(m.title+", "+clusters[k].name, func() (float64, error) {
			n++
			got, err := m.run(clusters[k], fmt.Sprintf("%s-warm-%d", dir, n))
			return got.rate, err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", m.title, clusters[k].name, err)
		}
	}
	rounds := make([][]slice, s.rounds)
	for round := range rounds {
		rounds[round] = make([]slice, len(clusters))
		for k := range clusters {
			k = (k + round) % len(clusters)
			got, err := m.run(clusters[k], fmt.Sprintf("%s-%d", dir, round))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", m.title, clusters[k].name, err)
			}
			rounds[round][k] = got
		}
	}
	return rounds, nil
}

// print() prints a row: the median of each cluster, and the span of the ratios between zlockd and ZooKeeper,
// one ratio for each round.
func (m *measurement) print(names []string, title string, f figure, rounds [][]slice) {
	row, spent, ratios := []string{title}, []string{}, []float64{}
	for k := range names {
		var values, cpus []float64
		for _, r := range rounds {
			values, cpus = append(values, f(&r[k])), append(cpus, r[k].cpu)
		}
		row, spent = append(row, number(measure.Median(values))), append(spent, number(measure.Median(cpus)))
	}
	ratio := "–"
	if len(names) > 1 && names[0] == "zlockd" && names[1] == "ZooKeeper" {
		for _, r := range rounds {
			v := f(&r[0]) / f(&r[1])
			if m.lower {
				v = 1 / v
			}
			ratios = append(ratios, v)
		}
		ratio = span(ratios, 2)
	}
	fmt.Printf("| %s | %s | %s |\n", strings.Join(row, " | "), ratio, strings.Join(spent, " / "))
}

func number(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func fillKeys(c servers, n int) error {
	k, err := c.keeper(c.addr(0))
	if err != nil {
		return err
	}
	defer k.close()
	i := 0
	return k.keepBusy(keyDepth, time.Now().Add(10*time.Minute), func() op {
		if i++; i > n {
			return op{}
		}
		return op{insert, sharedKey(i-1, n)}
	}, func(time.Duration) {})
}

// withClients opens n clients and calls f for all at once. It returns the rate and the processor time of the
// operations for which f calls done().
func withClients(c servers, n int, d time.Duration, open func(addr string) (keeper, error),
	f func(i int, k keeper, begin, end time.Time, done func(time.Duration)) error) (out slice, err error) {
	keepers := make([]keeper, n)
	for i := range n {
		if keepers[i], err = open(c.addr(i)); err != nil {
			return out, err
		}
		if keepers[i] != nil {
			defer keepers[i].close()
		}
	}
	before, begin := measure.CPU(c.Pids()...), time.Now()
	out.took, err = atOnce(n, func(i int, done func(time.Duration)) error {
		return f(i, keepers[i], begin, begin.Add(d), done)
	})
	if err != nil {
		return out, err
	}
	out.rate = float64(len(out.took)) / time.Since(begin).Seconds()
	out.cpu = float64((measure.CPU(c.Pids()...) - before).Microseconds()) / float64(len(out.took))
	return out, nil
}

// atOnce calls f for n clients at once. It returns the times that f passes to done(), in ms.
func atOnce(n int, f func(i int, done func(time.Duration)) error) (all []float64, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		wg.Go(func() {
			var took []float64
			e := f(i, func(t time.Duration) { took = append(took, float64(t.Nanoseconds())/1e6) })
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if e != nil {
				err = e
			}
		})
	}
	wg.Wait()
	if err == nil && len(all) == 0 {
		err = errors.New("nothing was done in the time")
	}
	return all, err
}

func measureBusy(c servers, d time.Duration, draw func(i int) *workload) (slice, error) {
	return withClients(c, keyConns, d, c.keeper,
		func(i int, k keeper, _, end time.Time, done func(time.Duration)) error {
			return k.keepBusy(keyDepth, end, draw(i).next, done)
		})
}

// atFixedRate begins operations of YCSB A at random times that do not depend on the answers. The latency of
// an operation counts from the time at which it was meant to begin.
func (s *settings) atFixedRate(zipf *measure.Zipf) func(c servers, dir string) (slice, error) {
	const clients = 64
	gap := float64(time.Second) * clients / float64(s.fixed)
	return func(c servers, dir string) (slice, error) {
		return withClients(c, clients, 2*s.duration, c.keeper,
			func(i int, k keeper, from, end time.Time, done func(time.Duration)) error {
				w := &workload{0.5, 0, zipf, s.keys, dir, 0}
				for {
					from = from.Add(time.Duration(rand.ExpFloat64() * gap))
					if !from.Before(end) {
						return nil
					}
					time.Sleep(time.Until(from))
					if err := k.do(w.next()); err != nil {
						return err
					}
					done(time.Since(from))
				}
			})
	}
}

func measureVisits(c servers, d time.Duration) (slice, error) {
	return withClients(c, keyConns, d, func(string) (keeper, error) { return nil, nil },
		func(i int, _ keeper, _, end time.Time, done func(time.Duration)) error {
			for n := i; time.Now().Before(end); n++ {
				from := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				err := c.visit(ctx, c.addr(n))
				cancel()
				if err != nil {
					return err
				}
				done(time.Since(from))
			}
			return nil
		})
}

// measureKill kills the leader, and measures the time until a new client has made a key at another server.
func measureKill(c servers) (out slice, err error) {
	leader, err := c.leader(c.Ensemble)
	if err != nil {
		return out, err
	}
	leader.Kill()
	took, err := firstOf(func(ctx context.Context, n int) error { return c.visit(ctx, c.addr(leader.ID+n%2)) })
	if err != nil {
		return out, fmt.Errorf("after the leader's end: %w", err)
	}
	out.took = []float64{took}
	if err := errors.Join(leader.Spawn(), leader.WaitReady()); err != nil {
		return out, err
	}
	time.Sleep(2 * time.Second) // so that the next measurement starts on a calm cluster
	return out, nil
}

// firstOf begins a try every 10 ms until one succeeds, and returns the time to that success in ms.
func firstOf(try func(ctx context.Context, n int) error) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan time.Time, 1)
	from := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		wg.Go(func() {
			if try(ctx, n) == nil {
				select {
				case done <- time.Now():
				default:
				}
			}
		})
		select {
		case at := <-done:
			return float64(at.Sub(from).Microseconds()) / 1e3, nil
		case <-tick.C:
		}
	}
	return 0, errors.New("no try succeeded within a minute")
}
