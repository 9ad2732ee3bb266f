package oracle_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/oracle"
	"github.com/zlockd/zlockd/test/zkreal"
)

var (
	seedFlag = flag.Uint64("oracle.seed", 0, "seed of the random programs; 0 chooses one")
	opsFlag  = flag.Int("oracle.ops", 20000, "how many requests are compared")
)

// episodeOps is the length of one program. Short programs shrink fast and
// begin anew often, long ones reach more states.
const episodeOps = 300

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64N(1e9)
	}
	t.Logf("seed %d (repeat with -oracle.seed=%d)", s, s)
	return s
}

// realConfig configures a ZooKeeper for comparisons: the features zlockd has
// by default are on, and nothing happens by the passing of time.
var realConfig = zkreal.Config{
	TTL: true, EnforceQuota: true, Super: oracle.Super, NoFsync: true, ContainerInterval: 24 * time.Hour,
	MinSessionTimeout: time.Minute, MaxSessionTimeout: 10 * time.Minute,
}

// Two real servers must never differ: what the comparison does not hold
// against the real server itself, it may hold against another.
func TestRealServersAgree(t *testing.T) {
	a, b := zkreal.Start(t, realConfig), zkreal.Start(t, realConfig)
	explore(t, oracle.NewRunner(a.Addr, b.Addr), seed(t), *opsFlag/4)
}

// explore runs random programs until it has compared n requests.
func explore(t *testing.T, r *oracle.Runner, seed uint64, n int) {
	t.Helper()
	begin := time.Now()
	for episode := uint64(0); r.Ops < n; episode++ {
		p, err := r.Episode(seed, episode, episodeOps)
		if err != nil {
			t.Fatalf("episode %d: %v\nprogram:\n%s", episode, err, p)
		}
	}
	t.Logf("%d requests compared in %v; known differences met: %v\nanswers: %v",
		r.Ops, time.Since(begin).Round(time.Millisecond), r.Uses, r.Answers)
}
