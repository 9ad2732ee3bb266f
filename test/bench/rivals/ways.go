package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
)

// lease is how long a killed holder keeps its lock, in services that let the client choose that time.
const lease = 4 * time.Second

type opener func(ctx context.Context, addr, path string, ttl time.Duration) (locker, error)

// way is one way to lock, on a server that runs.
type way struct {
	name, about string
	addr        string
	open        opener
	// crash() kills the server, or the leader of a cluster. It returns the addresses for a new client, and a
	// function that brings the dead server back; nil: there is no server.
	crash func() (next []string, restore func() error, err error)

	cells []string // this way's column of the table
}

// The table loses says what each way of locking can lose, as docs/why.md shows.
var loses = map[string]string{
	"zlockd":    "nothing confirmed; a holder that was paused is refused by its token",
	"ZooKeeper": "nothing confirmed; all clients' connections when the leader dies",
	"etcd":      "nothing confirmed",
	"Redis": "the lock, when its time ends under a holder that works, or a replica takes over; " +
		"no token, no queue",
	"PostgreSQL": "every lock, when the server or the connection ends; no token",
	"flock":      "all of it beyond one machine; no token",
}

// openerOf returns the function that opens a locker of a way.
func openerOf(name string) opener {
	for _, k := range kinds {
		if k.name == name {
			return k.locker
		}
	}
	return map[string]opener{"PostgreSQL": newPostgresLocker, "flock": newFlockLocker}[name]
}

// holdUntilKilled is the process that is killed: it holds a lock until standard input ends.
func holdUntilKilled(name, addr, path string) error {
	open := openerOf(name)
	if open == nil {
		return fmt.Errorf("there is no way %q", name)
	}
	l, err := open(context.Background(), addr, path, lease)
	if err != nil {
		return err
	}
	if err := l.lock(context.Background()); err != nil {
		return err
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// lockOnce opens a client, takes a lock and gives it back.
func lockOnce(ctx context.Context, open opener, addr, path string) error {
	l, err := open(ctx, addr, path, time.Minute)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.lock(ctx); err != nil {
		return err
	}
	return l.unlock(ctx)
}

// measureWays measures all ways, prints the table and writes it into a page.
func measureWays(s *settings, dir string) error {
	began := time.Now()
	ways, closeAll, err := startWays(s, dir)
	defer func() { closeAll() }()
	if err != nil {
		return err
	}
	rows := []string{"lock and unlock without a waiter: ms", "hand-off with 10 waiters: ms",
		fmt.Sprintf("holder killed by -9: s until the next one has it (lease %d s)", int(lease.Seconds())),
		"server killed by -9: ms until a new client had a lock", "a hold from before is then", "it loses"}
	one := []string{"/one"}
	if err := s.timed(ways, one, cycle); err != nil {
		return err
	}
	if err := s.timed(ways, slices.Repeat([]string{"/shared"}, 11), handoff); err != nil {
		return err
	}
	if err := eachWay(ways, func(w *way) error { return w.killHolders(s.rounds) }); err != nil {
		return err
	}
	if closeAll, err = threeServers(s, dir, ways, closeAll); err != nil {
		return err
	}
	for _, w := range ways {
		if err := w.killServers(s.rounds); err != nil {
			return fmt.Errorf("%s: a killed server: %w", w.name, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## A lock, five ways, beside ZooKeeper\n\n`make ways`, %s, %s, %d s.\n"+
		"Median (range) of %d rounds of %v in turn, each warm until level.\n\n|",
		time.Now().UTC().Format(time.DateOnly), measure.Machine(), int(time.Since(began).Seconds()),
		s.rounds, s.duration)
	for _, w := range ways {
		w.cells = append(w.cells, loses[w.name])
		fmt.Fprintf(&b, " | %s", w.name)
	}
	fmt.Fprintf(&b, " |\n|%s\n", strings.Repeat("---|", len(ways)+1))
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s", row)
		for _, w := range ways {
			fmt.Fprintf(&b, " | %s", w.cells[i])
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n")
	for _, w := range ways {
		fmt.Fprintf(&b, "- %s: %s\n", w.name, w.about)
	}
	fmt.Print("\n", b.String())
	if s.write == "" {
		return nil
	}
	return writeBetween(s.write, "ways", b.String())
}

// startWays starts one server of each service.
func startWays(s *settings, dir string) (list []*way, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, v := range startAll(s, dir, 1) {
		stops = append(stops, v.Close)
		w := &way{name: v.name, about: v.about(v.addr(0)), addr: v.addr(0), open: v.locker}
		server := v.Servers[0]
		w.crash = func() ([]string, func() error, error) { // threeServers replaces this function for a cluster
			server.Kill()
			return []string{w.addr}, server.WaitReady, server.Spawn()
		}
		list = append(list, w)
	}
	wanted := func(name string) bool {
		return s.only == "" || slices.Contains(strings.Split(s.only, ","), name)
	}
	if wanted("PostgreSQL") {
		p, err := startPostgres()
		if err != nil {
			fmt.Printf("* PostgreSQL: left out: %v\n", err)
		} else {
			stops = append(stops, p.close)
			list = append(list, &way{name: "PostgreSQL", addr: p.addr, open: newPostgresLocker,
				about: version(postgresProgram("postgres"), "--version") +
					"; pg_advisory_lock, a connection for each client; locks are in memory: nothing is synced",
				crash: func() ([]string, func() error, error) {
					return []string{p.addr}, func() error { return nil }, p.kill()
				}})
		}
	}
	if wanted("flock") {
		files := filepath.Join(dir, "flock")
		if err := os.MkdirAll(files, 0o700); err != nil {
			return list, stop, err
		}
		list = append(list, &way{name: "flock", addr: files, open: newFlockLocker,
			about: "flock(2) on a file; no server, and nothing is synced"})
	}
	if len(list) == 0 {
		return nil, stop, errors.New("no service could be started")
	}
	return list, stop, nil
}

// timed() calls run() for all ways, with a locker for each path. It first warms up each way. Then it calls
// run() in rounds in which the ways take turns. It adds a cell to each way, with the median of the last
// figure of run(), a time in ms.
func (s *settings) timed(ways []*way, paths []string,
	run func(lockers []locker, d time.Duration) ([]float64, error)) error {
	lockers, figures := make([][]locker, len(ways)), make([][]float64, len(ways))
	defer func() {
		for _, list := range lockers {
			for _, l := range list {
				l.close()
			}
		}
	}()
	figure := func(i int) (float64, error) {
		got, err := run(lockers[i], s.duration)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", ways[i].name, err)
		}
		return got[len(got)-1], nil
	}
	for i, w := range ways {
		for _, path := range paths {
			l, err := w.open(context.Background(), w.addr, path, time.Minute)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			lockers[i] = append(lockers[i], l)
		}
		if err := s.warmUp(w.name, func() (float64, error) { return figure(i) }); err != nil {
			return err
		}
	}
	for range s.rounds {
		for i := range ways {
			v, err := figure(i)
			if err != nil {
				return err
			}
			figures[i] = append(figures[i], v)
		}
	}
	for i, w := range ways {
		digits := 2
		if measure.Median(slices.Clone(figures[i])) < 0.1 {
			digits = 4
		}
		w.cells = append(w.cells, span(figures[i], digits))
	}
	return nil
}

// warmUp repeats a measurement for s.warm. Then it goes on until the last three results differ by less than a
// tenth, but for 3*s.warm at most.
func (s *settings) warmUp(name string, figure func() (float64, error)) error {
	var last []float64
	for began := time.Now(); ; {
		v, err := figure()
		if err != nil {
			return err
		}
		last = append(last, v)
		passed := time.Since(began)
		newest := last[max(0, len(last)-3):]
		level := len(newest) == 3 && slices.Max(newest) < 1.1*slices.Min(newest)
		if passed >= s.warm && level || passed >= 3*s.warm {
			fmt.Fprintf(os.Stderr, "%s: %d s warm, %.4g at first, then %.4g\n",
				name, int(passed.Seconds()), last[0], v)
			return nil
		}
	}
}

// eachWay calls f for all ways at once.
func eachWay(ways []*way, f func(*way) error) error {
	errs := make([]error, len(ways))
	var wg sync.WaitGroup
	for i, w := range ways {
		wg.Go(func() {
			if err := f(w); err != nil {
				errs[i] = fmt.Errorf("%s: %w", w.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// writeBetween replaces the text between two marks of a page.
func writeBetween(page, mark, text string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	before, rest, found := strings.Cut(string(b), begin)
	_, behind, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no marks %s", page, mark)
	}
	return os.WriteFile(page, []byte(before+begin+text+end+behind), 0o600)
}
