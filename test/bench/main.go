package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// config holds the command line.
type config struct {
	a, b         string
	nodes        int
	observers    int
	rounds       int
	level        time.Duration
	warm         time.Duration
	duration     time.Duration
	selection    string
	dir          string
	zlockdFlags  string
	zookeeperJVM string
	bigHeap      string
	sessions     int
	watches      int
	znodes       int
	pages        int

	names atomic.Int64
}

// unique() returns an unused path.
func (c *config) unique(what string) string {
	return fmt.Sprintf("/bench-%s-%d-%d", what, os.Getpid(), c.names.Add(1))
}

func main() {
	var c config
	withoutFloor := flag.Bool("no-floor", false,
		"leave out the program that shows the floor (needs a C compiler)")
	quick := flag.Bool("quick", false,
		"short rounds and small states: does everything work, roughly where are we")
	list := flag.Bool("list", false, "list the points and stop")
	flag.StringVar(&c.a, "a", "zlockd",
		"what is measured: zlockd, zlockd@BINARY, addrs=HOST:PORT,… or cmd=COMMAND")
	flag.StringVar(&c.b, "b", "zookeeper", "what it is compared with, or none")
	flag.IntVar(&c.nodes, "nodes", 1, "servers on each side")
	flag.IntVar(&c.observers, "observers", 0,
		"servers without a vote on each side, beside -nodes; clients then connect to these alone")
	flag.IntVar(&c.rounds, "rounds", 0, "rounds of each point (default 7, quick 3)")
	flag.DurationVar(&c.level, "level", -1, "before the first round of a point each side does it unmeasured "+
		"for so long at least, "+number(levelOps)+" times at least, and until its rate is level; 0: not at all "+
		"(default 10s, and 0 where no JVM takes part or with quick)")
	flag.DurationVar(&c.warm, "warm", 0, "unmeasured time before each round (default 1s, quick 300ms)")
	flag.DurationVar(&c.duration, "duration", 0, "measured time of each round (default 4s, quick 1s)")
	flag.StringVar(&c.selection, "points", "",
		"comma list of points or of families, such as set@16,get,handoff; default all")
	flag.StringVar(&c.dir, "dir", "", "where data goes (default the system's temporary directory)")
	flag.StringVar(&c.zlockdFlags, "zlockd-flags", "", "more flags of zlockd")
	flag.StringVar(&c.zookeeperJVM, "zookeeper-jvm", "-Xmx1g", "arguments of ZooKeeper's JVM")
	flag.StringVar(&c.bigHeap, "zookeeper-big-jvm", "-Xmx2g", "one more for points with a large state")
	flag.IntVar(&c.sessions, "sessions", 0, "idle sessions (default 10000, quick 1000)")
	flag.IntVar(&c.watches, "watches", 0, "watches (default 1000000, quick 100000)")
	flag.IntVar(&c.znodes, "znodes", 0, "nodes or locks of the large state (default 1000000, quick 100000)")
	flag.IntVar(&c.pages, "pages", 0,
		"pages of the lock view that look at the locks of -a, a zlockd, each second while it is measured")
	flag.Parse()
	if *quick {
		c.defaults(3, 300*time.Millisecond, time.Second, 1000, 100_000)
	} else {
		c.defaults(7, time.Second, 4*time.Second, 10_000, 1_000_000)
	}
	if *list {
		for _, p := range points(&c) {
			fmt.Printf("%-18s %s\n", p.name, p.help)
		}
		return
	}
	if c.level < 0 {
		c.level = 0
		if !*quick && (c.a == "zookeeper" || c.b == "zookeeper") {
			c.level = 10 * time.Second
		}
	}
	if err := c.run(!*withoutFloor && !*quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// defaults() fills in unset values.
func (c *config) defaults(rounds int, warm, duration time.Duration, sessions, large int) {
	fill := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&c.rounds, rounds)
	fill(&c.sessions, sessions)
	fill(&c.watches, large)
	fill(&c.znodes, large)
	if c.warm == 0 {
		c.warm = warm
	}
	if c.duration == 0 {
		c.duration = duration
	}
}

func (c *config) run(withFloor bool) error {
	sides, err := c.sides()
	if err != nil {
		return err
	}
	if withFloor {
		sides = c.withFloor(sides, os.Stderr)
	}
	// When this process ends, its servers end by themselves. Their directories must be removed even after a
	// signal.
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-closed
		for _, s := range sides {
			s.abandon()
		}
		os.Exit(130)
	}()
	defer func() {
		for _, s := range sides {
			s.close()
		}
	}()
	if c.pages > 0 && (sides[0].external != nil || sides[0].options.Kind != cluster.Zlockd) {
		return errors.New("-pages needs servers of zlockd that are started here as -a")
	}
	list := points(c)
	if len(list) == 0 {
		return fmt.Errorf("no point matches %q with %d nodes; see -list", c.selection, c.nodes)
	}
	rep := newReport(c, sides)
	failed := 0
	for _, p := range list {
		fmt.Fprintf(os.Stderr, "%s  %s …\n", time.Now().Format("15:04:05"), p.name)
		out, err := c.measurePoint(p, sides)
		if err != nil {
			failed++
			fmt.Fprintf(os.Stderr, "  %v\n", err)
		}
		rep.add(p, out, err)
	}
	rep.print(os.Stdout)
	if failed > 0 {
		return fmt.Errorf("%d points failed", failed)
	}
	return nil
}

func (c *config) sides() ([]*side, error) {
	var sides []*side
	for _, spec := range []string{c.a, c.b} {
		if spec == "none" {
			continue
		}
		s, err := newSide(spec, c)
		if err == nil {
			err = s.reachable()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec, err)
		}
		sides = append(sides, s)
	}
	if len(sides) == 2 && sides[0].name == sides[1].name {
		sides[1].name += " (b)"
	}
	return sides, nil
}
