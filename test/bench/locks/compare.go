package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
)

// comparison is one run of "locks compare".
type comparison struct {
	server         string // host:port
	dir            string // directory for compiled programs
	source         string // directory of this command's sources
	warm, duration time.Duration
	rounds         int
	waiters        []int
	libraries      []*library
	runs           int
}

// library is one of the compared libraries. The program of a foreign library prints the report as JSON.
type library struct {
	name, what string
	most       int                     // how many waiters a measurement may have at most
	recipe     string                  // this command's recipe; empty: the library has a program
	prepare    func(*comparison) error // finds out whether the library is there
	program    func(*comparison) []string
}

// Debian's jars, and the Python interpreter that has Debian's kazoo.
const (
	javaClasses = "/usr/share/java/zookeeper.jar:/usr/share/java/curator-client.jar:" +
		"/usr/share/java/curator-framework.jar:/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar"
	python = "/usr/bin/python3"
)

var libraries = []*library{
	{name: "zlock", what: "package client, `Mutex`", most: 1000, recipe: "mutex"},
	{name: "zlock-early", what: "package client, `Mutex` with `Lease.Release`", most: 1000,
		recipe: "mutex-early"},
	{name: "go-zookeeper", what: "go-zookeeper, `Lock`", most: 1000, recipe: "go-zookeeper"},
	{name: "curator", what: "Curator, `InterProcessMutex`", most: 100, prepare: compile,
		program: func(c *comparison) []string {
			return []string{"java", "-XX:+UseSerialGC", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
				"-cp", c.dir + ":" + javaClasses, "LockBench"}
		}},
	{name: "kazoo", what: "kazoo, `Lock`", most: 100, prepare: importKazoo,
		program: func(c *comparison) []string { return []string{python, filepath.Join(c.source, "lockbench.py")} }},
	{name: "children-watch", what: "all waiters watch the directory", most: 100, recipe: "children-watch"},
}

func compile(c *comparison) error {
	if _, err := os.Stat("/usr/share/java/curator-recipes.jar"); err != nil {
		return errors.New("Curator is not installed")
	}
	out, err := exec.Command("javac", "-d", c.dir, "-cp", javaClasses,
		filepath.Join(c.source, "LockBench.java")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("javac: %w: %s", err, out)
	}
	return nil
}

func importKazoo(*comparison) error {
	if err := exec.Command(python, "-c", "import kazoo").Run(); err != nil {
		return errors.New("kazoo is not installed")
	}
	return nil
}

// compare() measures libraries side by side and prints a table.
func compare(ctx context.Context, args []string, out, log io.Writer) error {
	fs := flag.NewFlagSet("locks compare", flag.ContinueOnError)
	server := fs.String("server", "zlockd",
		"zlockd or zookeeper, started for the run, or the `HOST:PORT` of one that runs")
	names := fs.String("libraries", "zlock,zlock-early,go-zookeeper,curator,kazoo,children-watch",
		"which to compare")
	waiters := fs.String("waiters", "0,1,10,100,1000", "points; Curator, kazoo and children-watch stop at 100")
	c := &comparison{}
	fs.IntVar(&c.rounds, "rounds", 3, "rounds, in each of which the libraries take turns; the median counts")
	fs.DurationVar(&c.duration, "duration", 5*time.Second, "time to measure")
	fs.DurationVar(&c.warm, "warm", 5*time.Second, "time to work before")
	quick := fs.Bool("quick", false, "a smoke test: one round of half a second, none or three waiters")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *quick {
		c.rounds, c.duration, c.warm, *waiters = 1, 500*time.Millisecond, 500*time.Millisecond, "0,3"
	}
	for s := range strings.SplitSeq(*waiters, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("-waiters: %q is not a number", s)
		}
		c.waiters = append(c.waiters, n)
	}
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	c.source = filepath.Join(root, "test", "bench", "locks")
	if c.dir, err = os.MkdirTemp("", "zlockd-locks-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	missing, err := c.choose(strings.Split(*names, ","))
	if err != nil {
		return err
	}
	what, stop, err := c.startServer(*server)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "%s, %s. Server: %s. %d rounds of %v after %v of warm-up, the "+
		"libraries in turn; medians.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), measure.Machine(), what, c.rounds, c.duration, c.warm)
	failed := c.table(ctx, out, log)
	for _, m := range missing {
		fmt.Fprintf(out, "\nLeft out: %s.\n", m)
	}
	fmt.Fprintf(out, "\nLoad %s at the end.\n", measure.Load())
	return failed
}

// choose() takes the libraries of these names, and leaves out those that are not installed.
func (c *comparison) choose(names []string) (missing []string, err error) {
	for _, name := range names {
		i := slices.IndexFunc(libraries, func(l *library) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-libraries: %q is unknown", name)
		}
		l := libraries[i]
		if l.prepare != nil {
			if err := l.prepare(c); err != nil {
				missing = append(missing, l.name+": "+err.Error())
				continue
			}
		}
		c.libraries = append(c.libraries, l)
	}
	return missing, nil
}

func (c *comparison) startServer(server string) (what string, stop func(), err error) {
	if strings.Contains(server, ":") {
		c.server = server
		return "one that ran", func() {}, nil
	}
	e, err := cluster.Start(cluster.Options{Kind: cluster.Kind(server), JVM: []string{"-Xmx1g"}})
	if err != nil {
		return "", nil, err
	}
	c.server = e.Servers[0].Client
	version, _, _ := strings.Cut(e.Servers[0].Word("srvr"), "\n")
	return fmt.Sprintf("one %s, durable (%s)", server, version), e.Close, nil
}

// measure() runs a library once, on its own lock.
func (c *comparison) measure(ctx context.Context, l *library, waiters int) (r report, err error) {
	c.runs++
	path := fmt.Sprintf("/bench-%s-%d", l.name, c.runs)
	if l.program == nil {
		runtime.GC() // collect now, so that no later measurement pays for this garbage
		return measureOne(ctx, &benchFlags{Recipe: l.recipe, Clients: waiters + 1, Goroutines: 1, Locks: 1,
			Fault: "none", Duration: c.duration, warm: c.warm, servers: c.server, root: path,
			sessionTimeout: zk.DefaultTimeout})
	}
	// The extra time is for the sessions to open one by one, and for every waiter in the queue to get the lock.
	ctx, cancel := context.WithTimeout(ctx, c.warm+c.duration+2*time.Minute)
	defer cancel()
	argv := append(l.program(c), c.server, path, strconv.Itoa(waiters+1),
		strconv.FormatInt(c.warm.Milliseconds(), 10), strconv.FormatInt(c.duration.Milliseconds(), 10))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, errs.Bytes()[max(0, errs.Len()-500):])
	}
	r.Events = math.NaN() // NaN stays if the program does not count events
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("%w in %q", err, out)
	}
	if r.Violations > 0 {
		err = fmt.Errorf("%w %d times", errViolated, r.Violations)
	}
	return r, err
}

// table() measures everything and writes a row for each point and library. A failure appears in
// its row and does not stop the rest.
func (c *comparison) table(ctx context.Context, out, log io.Writer) (failed error) {
	fmt.Fprintln(out, "| waiters | lock | cycles/s | acquire p50 / p99 ms | hand-off p50 / p99 ms | requests "+
		"| events |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, w := range c.waiters {
		reports := make(map[*library][]report)
		errs := make(map[*library]error)
		for round := range c.rounds {
			for i := range c.libraries {
				l := c.libraries[(i+round)%len(c.libraries)]
				if w > l.most || errs[l] != nil {
					continue
				}
				r, err := c.measure(ctx, l, w)
				fmt.Fprintf(log, "%d waiters, round %d: %s: %.1f/s, hand-off %.2f ms (%v)\n",
					w, round+1, l.name, r.PerSecond, r.Handoff.P50, err)
				if err != nil {
					errs[l] = fmt.Errorf("%s, %d waiters: %w", l.name, w, err)
					failed = errors.Join(failed, errs[l])
					continue
				}
				reports[l] = append(reports[l], r)
			}
		}
		for _, l := range c.libraries {
			switch {
			case w > l.most:
			case errs[l] != nil:
				text := strings.NewReplacer("|", "/", "\n", " ").Replace(errs[l].Error())
				fmt.Fprintf(out, "| %d | %s | failed: %s |||||\n", w, l.what, text)
			default:
				fmt.Fprintln(out, row(w, l, reports[l]))
			}
		}
	}
	return failed
}

// row() has the medians of a library's measurements.
func row(waiters int, l *library, list []report) string {
	of := func(digits int, f func(*report) float64) string {
		values := make([]float64, len(list))
		for i := range list {
			values[i] = f(&list[i])
		}
		if m := measure.Median(values); !math.IsNaN(m) {
			return strconv.FormatFloat(m, 'f', digits, 64)
		}
		return "–"
	}
	handoff := "–"
	if waiters > 0 {
		handoff = of(2, func(r *report) float64 { return r.Handoff.P50 }) + " / " +
			of(2, func(r *report) float64 { return r.Handoff.P99 })
	}
	unknown := math.NaN()
	return fmt.Sprintf("| %d | %s | %s | %s / %s | %s | %s | %s |", waiters, l.what,
		of(0, func(r *report) float64 { return r.PerSecond }),
		of(2, func(r *report) float64 { return r.Acquire.P50 }),
		of(2, func(r *report) float64 { return r.Acquire.P99 }),
		handoff, of(2, func(r *report) float64 { return *cmp.Or(r.Counted, &unknown) }),
		of(2, func(r *report) float64 { return r.Events }))
}
