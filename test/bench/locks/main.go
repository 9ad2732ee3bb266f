package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// benchRecipes are the recipes to measure. The last two are for comparison: a queue in which
// every waiter watches the directory, and go-zookeeper's own Lock.
var benchRecipes = []string{"mutex", "mutex-early", "rw", "policy", "sem", "children-watch", "go-zookeeper"}

// benchFlags say what to measure.
type benchFlags struct {
	Recipe     string        `json:"recipe"`
	Clients    int           `json:"clients"`
	Goroutines int           `json:"goroutines"` // number of goroutines of each client
	Locks      int           `json:"locks"`
	Hold       time.Duration `json:"-"`
	ReadRatio  float64       `json:"readRatio"`
	Policy     string        `json:"policy,omitempty"`
	Duration   time.Duration `json:"-"`
	Fault      string        `json:"fault"`

	servers        string
	sessionTimeout time.Duration
	json           bool
	warm           time.Duration
	every          time.Duration
	killCommand    string
	root           string
	profile        string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "compare" {
		err = compare(ctx, os.Args[2:], os.Stdout, os.Stderr)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errViolated):
		fmt.Fprintln(os.Stderr, "locks:", err)
		os.Exit(4)
	case err != nil:
		fmt.Fprintln(os.Stderr, "locks:", err)
		os.Exit(1)
	}
}

// parse() reads the command line.
func parse(args []string) (*benchFlags, error) {
	b := &benchFlags{}
	fs := flag.NewFlagSet("locks", flag.ContinueOnError)
	fs.StringVar(&b.servers, "servers", "127.0.0.1:2181", "HOST:PORT,… of the ensemble, in the clear")
	fs.DurationVar(&b.sessionTimeout, "session-timeout", zk.DefaultTimeout, "of every client")
	fs.StringVar(&b.Recipe, "recipe", "mutex", "which lock: "+strings.Join(benchRecipes, ", "))
	fs.IntVar(&b.Clients, "clients", 1, "sessions")
	fs.IntVar(&b.Goroutines, "goroutines", 1, "workers of each session")
	fs.IntVar(&b.Locks, "locks", 1, "locks to choose from")
	fs.DurationVar(&b.Hold, "hold", 0, "time to hold a lock")
	fs.Float64Var(&b.ReadRatio, "read-ratio", 0.9, "part of read locks (rw, policy)")
	fs.StringVar(&b.Policy, "policy", "fair", "of the recipe policy: fair, reader or writer")
	fs.DurationVar(&b.Duration, "duration", 5*time.Second, "time to measure")
	fs.DurationVar(&b.warm, "warm", 0, "time to work before, so that queues are filled")
	fs.StringVar(&b.Fault, "fault", "none", "what to break at the same time: none, cut, expire or kill-leader")
	fs.DurationVar(&b.every, "fault-every", 2*time.Second, "how often")
	fs.StringVar(&b.killCommand, "kill-command", "", "for the shell, kills the leader")
	fs.StringVar(&b.root, "root", "/lock-bench", "path below which the locks are")
	fs.StringVar(&b.profile, "cpuprofile", "", "write a profile of this process's processor time to `FILE`")
	fs.BoolVar(&b.json, "json", false, "tell it as JSON")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	return b, b.check()
}

func (b *benchFlags) check() error {
	_, err := recipe.ParsePolicy(b.Policy)
	switch {
	case !slices.Contains(benchRecipes, b.Recipe):
		return fmt.Errorf("-recipe %s: there are %s", b.Recipe, strings.Join(benchRecipes, ", "))
	case err != nil:
		return err
	case !slices.Contains([]string{"none", "cut", "expire", "kill-leader"}, b.Fault):
		return fmt.Errorf("-fault %s: there are none, cut, expire and kill-leader", b.Fault)
	case b.Clients < 1 || b.Goroutines < 1 || b.Locks < 1:
		return fmt.Errorf("-clients, -goroutines and -locks must be at least 1")
	case b.ReadRatio < 0 || b.ReadRatio > 1:
		return fmt.Errorf("-read-ratio must be between 0 and 1")
	case b.Duration <= 0 || b.every <= 0 || b.warm < 0:
		return fmt.Errorf("-duration and -fault-every must be positive, -warm not negative")
	case (b.Fault == "kill-leader") != (b.killCommand != ""):
		return fmt.Errorf("-fault kill-leader and -kill-command go together")
	case b.raw() && b.Fault != "none":
		return fmt.Errorf("the recipes for comparison are measured without faults")
	}
	return nil
}

// raw() reports whether the recipe uses a connection of go-zookeeper.
func (b *benchFlags) raw() bool { return b.Recipe == "children-watch" || b.Recipe == "go-zookeeper" }

// errViolated ends a run in which the locks did not exclude.
var errViolated = errors.New("exclusion was violated")

func run(ctx context.Context, args []string, out io.Writer) error {
	b, err := parse(args)
	if err != nil {
		return err
	}
	r, err := measureOne(ctx, b)
	if r.Seconds == 0 { // nothing was measured
		return err
	}
	return errors.Join(b.show(out, &r), err)
}

// measureOne measures one kind of lock. If the locks do not exclude, it returns an error beside the report.
func measureOne(ctx context.Context, b *benchFlags) (r report, err error) {
	m := newMeter(b)
	var sessions []session
	defer func() {
		for _, s := range sessions {
			s.close()
		}
	}()
	for range b.Clients {
		s, err := openSession(ctx, b)
		if err != nil {
			return r, err
		}
		sessions = append(sessions, s)
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	if b.warm == 0 {
		m.begin()
	}
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return r, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return r, err
		}
		defer pprof.StopCPUProfile()
	}
	before, counted := costs(sessions), askReceived(b.servers)
	begun := time.Now()
	for i, s := range sessions {
		for j := range b.Goroutines {
			wg.Go(func() { m.work(work, s, i*b.Goroutines+j) })
		}
	}
	wg.Go(func() { breakThings(work, b, sessions) })
	if b.warm > 0 {
		pause(ctx, b.warm)
		before, counted = costs(sessions), askReceived(b.servers)
		begun = time.Now()
		m.begin()
	}
	pause(ctx, b.Duration)
	// Count before the waiters leave the queue. The requests to leave are not part of the cost of a lock.
	r = m.report(time.Since(begun), costs(sessions).minus(before))
	r.Counted = askReceived(b.servers).since(counted, r.Acquired)
	cancel()
	wg.Wait()
	m.judge(&r)
	if r.Violations > 0 {
		return r, fmt.Errorf("%w %d times: %s", errViolated, r.Violations, m.firstViolation)
	}
	if r.Acquired == 0 {
		err = m.firstError
	}
	return r, err
}

// report is the output of the command.
type report struct {
	benchFlags
	HoldMs     float64     `json:"holdMs"`
	Seconds    float64     `json:"seconds"`
	Acquired   int         `json:"acquired"`
	PerSecond  float64     `json:"perSecond"`
	Acquire    percentiles `json:"acquireMs"`
	Handoff    percentiles `json:"handoffMs"`
	Jain       float64     `json:"jain"`
	Requests   float64     `json:"requestsPerAcquire"`
	Counted    *float64    `json:"serverRequestsPerAcquire,omitempty"` // as the servers count them; nil: unknown
	Events     float64     `json:"eventsPerAcquire"`
	Bytes      float64     `json:"bytesPerAcquire"`
	Lost       int         `json:"lost"`
	Errors     int         `json:"errors"`
	Violations int         `json:"violations"`
}

// percentiles of durations, in milliseconds.
type percentiles struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func percentilesOf(ds []time.Duration) percentiles {
	p := percentiles{N: len(ds)}
	if len(ds) == 0 {
		return p
	}
	slices.Sort(ds)
	at := func(q float64) float64 {
		return ms(ds[min(len(ds)-1, int(q*float64(len(ds))))])
	}
	p.P50, p.P90, p.P99, p.P999, p.Max = at(0.5), at(0.9), at(0.99), at(0.999), ms(ds[len(ds)-1])
	return p
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// show() prints a report.
func (b *benchFlags) show(out io.Writer, r *report) error {
	if b.json {
		return json.NewEncoder(out).Encode(r)
	}
	add := func(what, form string, args ...any) {
		fmt.Fprintf(out, "%-14s%s\n", what, fmt.Sprintf(form, args...))
	}
	add("recipe", "%s, %d clients × %d, %d locks, fault %s",
		r.Recipe, r.Clients, r.Goroutines, r.Locks, r.Fault)
	add("acquired", "%d in %.1fs: %.1f/s", r.Acquired, r.Seconds, r.PerSecond)
	for _, l := range []struct {
		name string
		p    percentiles
	}{{"acquire ms", r.Acquire}, {"handoff ms", r.Handoff}} {
		add(l.name, "p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f  (%d)", l.p.P50, l.p.P90, l.p.P99, l.p.P999,
			l.p.Max, l.p.N)
	}
	add("fairness", "%.3f", r.Jain)
	add("per acquire", "%.2f requests, %.2f events, %.0f bytes", r.Requests, r.Events, r.Bytes)
	if r.Counted != nil {
		add("at servers", "%.2f requests per acquire", *r.Counted)
	}
	add("lost, errors", "%d, %d", r.Lost, r.Errors)
	add("violations", "%d", r.Violations)
	return nil
}

// pause() waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// breakThings injects the faults.
func breakThings(ctx context.Context, b *benchFlags, sessions []session) {
	if b.Fault == "none" {
		return
	}
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s := sessions[i%len(sessions)]
		switch b.Fault {
		case "cut":
			s.faults.Cut()
		case "expire":
			s.faults.Blackhole(true)
			time.AfterFunc(s.timeout+s.timeout/2, func() { s.faults.Blackhole(false) })
		case "kill-leader":
			if err := exec.CommandContext(ctx, "/bin/sh", "-c", b.killCommand).Run(); err != nil {
				fmt.Fprintln(os.Stderr, "locks: -kill-command:", err)
			}
		}
	}
}

// isLoss reports whether an error is expected of a worker whose time is over or whose session
// broke.
func isLoss(err error) bool {
	return errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrSessionExpired)
}
