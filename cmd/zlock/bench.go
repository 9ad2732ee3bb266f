package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
)

// recipes of the bench. The last two are there for comparison: a queue in which
// every waiter watches the directory, and go-zookeeper's own Lock.
var benchRecipes = []string{"mutex", "rw", "rw1", "sem", "simple", "children-watch", "go-zookeeper"}

// benchFlags say what to measure.
type benchFlags struct {
	Recipe      string        `json:"recipe"`
	Clients     int           `json:"clients"`
	Goroutines  int           `json:"goroutines"` // per client
	Locks       int           `json:"locks"`
	Hold        time.Duration `json:"-"`
	ReadRatio   float64       `json:"readRatio"`
	Policy      string        `json:"policy,omitempty"`
	Duration    time.Duration `json:"-"`
	Fault       string        `json:"fault"`
	warm        time.Duration
	every       time.Duration
	killCommand string
	root        string
	handoff     int
}

func benchCommand() *command {
	return &command{
		name: "bench", args: "", does: "measure locks, and check that they exclude",
		help: `Each of CLIENTS sessions has GOROUTINES workers that take one of LOCKS, hold it for
a time and give it back. Exclusion is verified all the while, by the fencing tokens
and by a counter in memory. What is told: latency of acquiring, handoff (from a
release being sent to the next grant, where somebody waited), rate, fairness among
workers (Jain's index, 1 is even), and what an acquisition costs in requests,
events and bytes, heartbeats not counted, and in requests as the servers count
them, heartbeats and all. The waiters of one session queue within it: a queue of N
at the servers takes N clients.

Faults, one each --fault-every: cut breaks the connection of a client, expire
leaves one without a word for longer than its session timeout, kill-leader runs
--kill-command by the shell. Exit code: 0, or 4 if exclusion was violated.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			b := &benchFlags{Recipe: "mutex", Fault: "none", Policy: "fair", Duration: 5 * time.Second, every: 2 * time.Second}
			fs.Var(newChoice(&b.Recipe, benchRecipes...), "recipe", "which lock")
			fs.IntVar(&b.Clients, "clients", 1, "sessions")
			fs.IntVar(&b.Goroutines, "goroutines", 1, "workers of each session")
			fs.IntVar(&b.Locks, "locks", 1, "locks to choose from")
			addDuration(fs, &b.Hold, "hold", "", "time to hold a lock")
			fs.Float64Var(&b.ReadRatio, "read-ratio", 0.9, "part of read locks (rw, rw1)")
			fs.Var(newChoice(&b.Policy, "fair", "reader", "writer"), "policy", "policy of rw1")
			addDuration(fs, &b.Duration, "duration", "", "time to measure")
			addDuration(fs, &b.warm, "warm", "", "time to work before, so that queues are filled")
			fs.Var(newChoice(&b.Fault, "none", "cut", "expire", "kill-leader"), "fault", "what to break meanwhile")
			addDuration(fs, &b.every, "fault-every", "", "how often")
			fs.StringVar(&b.killCommand, "kill-command", "", "`STRING` for the shell that kills the leader")
			fs.StringVar(&b.root, "root", "/zlock-bench", "`PATH` below which the locks are")
			fs.IntVar(&b.handoff, "handoff", 0, "pass a lock on within a client up to `N` times")
			format := addFormat(fs)
			conn := addConnectFlags(fs)
			return func(c *call) error { return c.bench(b, conn, *format) }
		},
	}
}

func (b *benchFlags) check() error {
	switch {
	case b.Clients < 1 || b.Goroutines < 1 || b.Locks < 1:
		return usagef("--clients, --goroutines and --locks must be at least 1")
	case b.ReadRatio < 0 || b.ReadRatio > 1:
		return usagef("--read-ratio must be between 0 and 1")
	case b.Duration <= 0 || b.every <= 0 || b.warm < 0:
		return usagef("--duration and --fault-every must be positive, --warm not negative")
	case (b.Fault == "kill-leader") != (b.killCommand != ""):
		return usagef("--fault kill-leader and --kill-command go together")
	case b.raw() && b.Fault != "none":
		return usagef("the recipes for comparison are measured without faults")
	}
	return nil
}

// raw recipes work on a connection of go-zookeeper's.
func (b *benchFlags) raw() bool { return b.Recipe == "children-watch" || b.Recipe == "go-zookeeper" }

func (c *call) bench(b *benchFlags, conn *connectFlags, format string) error {
	if err := c.operands(0, 0); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	m := newMeter(b)
	var sessions []session
	defer func() {
		for _, s := range sessions {
			s.close()
		}
	}()
	for range b.Clients {
		s, err := c.openSession(ctx, b, conn)
		if err != nil {
			return asExit(err)
		}
		sessions = append(sessions, s)
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	if b.warm == 0 {
		m.begin()
	}
	before, counted := costs(sessions), c.received(conn)
	begun := time.Now()
	for i, s := range sessions {
		for j := range b.Goroutines {
			wg.Go(func() { m.work(run, s, i*b.Goroutines+j) })
		}
	}
	wg.Go(func() { c.breakThings(run, b, sessions) })
	if b.warm > 0 {
		pause(ctx, b.warm)
		before, counted = costs(sessions), c.received(conn)
		begun = time.Now()
		m.begin()
	}
	pause(ctx, b.Duration)
	// What the waiters do to leave the queue is not the price of a lock.
	r := m.report(time.Since(begun), costs(sessions).minus(before))
	r.Counted = c.received(conn).since(counted, r.Acquired)
	cancel()
	wg.Wait()
	m.judge(&r)
	if err := c.showReport(r, format); err != nil {
		return err
	}
	if r.Violations > 0 {
		return exitf(exitViolated, "exclusion was violated %d times: %s", r.Violations, m.firstViolation)
	}
	if ctx.Err() != nil {
		return asExit(context.Cause(ctx))
	}
	if r.Acquired == 0 && m.firstError != nil {
		return m.firstError
	}
	return nil
}

// report is what bench tells.
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
	Counted    *float64    `json:"serverRequestsPerAcquire,omitempty"` // by the servers
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

func (c *call) showReport(r report, format string) error {
	p := c.printer(format, "WHAT", "VALUE")
	if format == formatJSON {
		p.row(r)
		return p.flush()
	}
	add := func(what, form string, args ...any) { p.row(nil, what, fmt.Sprintf(form, args...)) }
	add("recipe", "%s, %d clients × %d, %d locks, fault %s", r.Recipe, r.Clients, r.Goroutines, r.Locks, r.Fault)
	add("acquired", "%d in %.1fs: %.1f/s", r.Acquired, r.Seconds, r.PerSecond)
	for _, l := range []struct {
		name string
		p    percentiles
	}{{"acquire ms", r.Acquire}, {"handoff ms", r.Handoff}} {
		add(l.name, "p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f  (%d)", l.p.P50, l.p.P90, l.p.P99, l.p.P999, l.p.Max, l.p.N)
	}
	add("fairness", "%.3f", r.Jain)
	add("per acquire", "%.2f requests, %.2f events, %.0f bytes", r.Requests, r.Events, r.Bytes)
	if r.Counted != nil {
		add("at servers", "%.2f requests per acquire", *r.Counted)
	}
	add("lost, errors", "%d, %d", r.Lost, r.Errors)
	add("violations", "%d", r.Violations)
	return p.flush()
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// breakThings injects the faults.
func (c *call) breakThings(ctx context.Context, b *benchFlags, sessions []session) {
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
			s.net.cut()
		case "expire":
			s.net.mute(s.timeout + s.timeout/2)
		case "kill-leader":
			if err := runShell(ctx, b.killCommand); err != nil {
				c.say("--kill-command: %v", err)
			}
		}
	}
}

// expected errors of a worker whose time is over or whose session broke.
func isLoss(err error) bool {
	return errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrSessionExpired)
}
