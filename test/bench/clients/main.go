package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
)

// bench is one run of this command.
type bench struct {
	server         string // host:port
	dir            string // for the built programs
	source         string // the sources of this command
	locks          string
	warm, duration time.Duration
	rounds         int
	waiters        []int
	libraries      []*library
	runs           int
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run(args []string, out, log io.Writer) error {
	fs := flag.NewFlagSet("clients", flag.ContinueOnError)
	server := fs.String("server", "zlockd",
		"zlockd or zookeeper, started for the run, or the `HOST:PORT` of one that runs")
	names := fs.String("libraries", "zlock,zlock-early,go-zookeeper,curator,kazoo,children-watch",
		"which to compare")
	waiters := fs.String("waiters", "0,1,10,100,1000", "points; Curator, kazoo and children-watch stop at 100")
	b := &bench{}
	fs.IntVar(&b.rounds, "rounds", 3, "rounds, in each of which the libraries take turns; the median counts")
	fs.DurationVar(&b.duration, "duration", 5*time.Second, "time to measure")
	fs.DurationVar(&b.warm, "warm", 5*time.Second, "time to work before")
	quick := fs.Bool("quick", false, "a smoke test: one round of half a second, none or three waiters")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *quick {
		b.rounds, b.duration, b.warm, *waiters = 1, 500*time.Millisecond, 500*time.Millisecond, "0,3"
	}
	for _, s := range strings.Split(*waiters, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("-waiters: %q is not a number", s)
		}
		b.waiters = append(b.waiters, n)
	}
	missing, err := b.prepare(strings.Split(*names, ","))
	if b.dir != "" {
		defer os.RemoveAll(b.dir)
	}
	if err != nil {
		return err
	}
	what, stop, err := b.startServer(*server)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "%s, %s. Server: %s. %d rounds of %v after %v of warm-up, the "+
		"libraries in turn; medians.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), measure.Machine(), what, b.rounds, b.duration, b.warm)
	failed := b.table(out, log)
	for _, m := range missing {
		fmt.Fprintf(out, "\nLeft out: %s.\n", m)
	}
	fmt.Fprintf(out, "\nLoad %s at the end.\n", measure.Load())
	return failed
}

// prepare builds the programs to run, and leaves out those that are not installed.
func (b *bench) prepare(names []string) (missing []string, err error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return nil, err
	}
	b.source = filepath.Join(root, "test", "bench", "clients")
	if b.dir, err = os.MkdirTemp("", "zlockd-clients-"); err != nil {
		return nil, err
	}
	b.locks = filepath.Join(b.dir, "locks")
	build := exec.Command("go", "build", "-o", b.locks, "./test/bench/locks")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build test/bench/locks: %w\n%s", err, out)
	}
	for _, name := range names {
		i := slices.IndexFunc(libraries, func(l *library) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-libraries: %q is unknown", name)
		}
		l := libraries[i]
		if l.prepare != nil {
			if err := l.prepare(b); err != nil {
				missing = append(missing, l.name+": "+err.Error())
				continue
			}
		}
		b.libraries = append(b.libraries, l)
	}
	return missing, nil
}

func (b *bench) startServer(server string) (what string, stop func(), err error) {
	if strings.Contains(server, ":") {
		b.server = server
		return "one that ran", func() {}, nil
	}
	e, err := cluster.Start(cluster.Options{Kind: cluster.Kind(server), JVM: []string{"-Xmx1g"}})
	if err != nil {
		return "", nil, err
	}
	b.server = e.Servers[0].Client
	version, _, _ := strings.Cut(e.Servers[0].Word("srvr"), "\n")
	return fmt.Sprintf("one %s, durable (%s)", server, version), e.Close, nil
}

// table measures everything and writes a row for each point and library. A failure appears in
// its row and does not stop the rest.
func (b *bench) table(out, log io.Writer) (failed error) {
	fmt.Fprintln(out, "| waiters | lock | cycles/s | acquire p50 / p99 ms | hand-off p50 / p99 ms | requests "+
		"| events |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, w := range b.waiters {
		points := make(map[*library][]point)
		errs := make(map[*library]error)
		for round := range b.rounds {
			for i := range b.libraries {
				l := b.libraries[(i+round)%len(b.libraries)]
				if w > l.most || errs[l] != nil {
					continue
				}
				p, err := b.measure(l, w)
				fmt.Fprintf(log, "%d waiters, round %d: %s: %.1f/s, hand-off %.2f ms, %.2f requests (%v)\n",
					w, round+1, l.name, p.PerSecond, p.Handoff.P50, p.Requests, err)
				if err != nil {
					errs[l], failed = err, errors.Join(failed, err)
					continue
				}
				points[l] = append(points[l], p)
			}
		}
		for _, l := range b.libraries {
			switch {
			case w > l.most:
			case errs[l] != nil:
				fmt.Fprintf(out, "| %d | %s | failed: %s |||||\n", w, l.what, strings.ReplaceAll(errs[l].Error(), "|",
					"/"))
			default:
				fmt.Fprintln(out, row(w, l, points[l]))
			}
		}
	}
	return failed
}

func row(waiters int, l *library, ps []point) string {
	of := func(f func(point) float64) float64 {
		values := make([]float64, len(ps))
		for i, p := range ps {
			values[i] = f(p)
		}
		return measure.Median(values)
	}
	handoff := "–"
	if waiters > 0 {
		handoff = fmt.Sprintf("%.2f / %.2f", of(func(p point) float64 { return p.Handoff.P50 }),
			of(func(p point) float64 { return p.Handoff.P99 }))
	}
	events := "–"
	if ps[0].Events != nil {
		events = fmt.Sprintf("%.2f", of(func(p point) float64 { return *p.Events }))
	}
	return fmt.Sprintf("| %d | %s | %.0f | %.2f / %.2f | %s | %.2f | %s |", waiters, l.what,
		of(func(p point) float64 { return p.PerSecond }),
		of(func(p point) float64 { return p.Acquire.P50 }), of(func(p point) float64 { return p.Acquire.P99 }),
		handoff,
		of(func(p point) float64 { return p.Requests }), events)
}
