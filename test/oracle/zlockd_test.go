package oracle_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/oracle"
)

var (
	seedFlag = flag.Uint64("oracle.seed", 0, "seed of the random programs; 0 chooses one")
	opsFlag  = flag.Int("oracle.ops", 20000, "how many requests are compared")
)

// episodeOps is the length of a program. A short program shrinks fast and starts again often; a long one
// reaches more states.
const episodeOps = 300

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64N(1e9)
	}
	t.Logf("seed %d (repeat with -oracle.seed=%d)", s, s)
	return s
}

// A server is killed when all requests are answered. It comes back with all of its state: nodes with their
// counters, ACLs, quotas, sessions.
func TestKilledServerComesBackAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts a server many times")
	}
	// With frequent snapshots the server comes back from a snapshot as well as from its log.
	e := zlockd(t, cluster.Options{}, "--snapshot-entries", "100")
	r := oracle.NewRunner(startZlockd(t), e.Addrs())
	r.Pipeline, r.Exact = true, true
	restarts := 0
	r.Restart = func() error {
		restarts++
		e.Servers[0].Kill()
		return e.StartAll()
	}
	explore(t, r, seed(t), *opsFlag/10)
	t.Logf("%d restarts", restarts)
}

// Requests that are sent in one piece have the same effect as one after another.
func TestPipeliningChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs servers as processes: make test-all")
	}
	r := oracle.NewRunner(startZlockd(t), startZlockd(t))
	r.Pipeline, r.Exact = true, true
	explore(t, r, seed(t), *opsFlag/4)
}

// startZlockd runs a single zlockd in memory until the test ends.
func startZlockd(t *testing.T) (addr string) {
	t.Helper()
	return zlockd(t, cluster.Options{Dev: true}).Addrs()
}

// config configures both kinds of servers. It enables what zlockd has by default, and prevents all that
// happens only because time passes.
var config = []string{"extendedTypesEnabled=true", "enforceQuota=true", cluster.Super(oracle.Super),
	"znode.container.checkIntervalMs=86400000", "minSessionTimeout=60000", "maxSessionTimeout=600000"}

// zlockd() starts servers that run until the test ends.
func zlockd(t *testing.T, o cluster.Options, flags ...string) *cluster.Ensemble {
	t.Helper()
	o.Config, o.Flags = config, flags
	e := must.Get(cluster.Start(o))(t)
	t.Cleanup(e.Close)
	return e
}

// explore() runs random programs until it has compared n requests.
func explore(t *testing.T, r *oracle.Runner, seed uint64, n int) {
	t.Helper()
	begin := time.Now()
	for episode := uint64(0); r.Ops < n; episode++ {
		p, err := r.Episode(seed, episode, episodeOps)
		if err != nil {
			report(t, r, episode, p, err)
		}
	}
	t.Logf("%d requests compared in %v; known differences met: %v\nanswers: %v",
		r.Ops, time.Since(begin).Round(time.Millisecond), r.Uses, r.Answers)
}

// report() shrinks a program that shows a difference and writes it as a script.
func report(t *testing.T, r *oracle.Runner, episode uint64, p oracle.Program, err error) {
	t.Helper()
	var d *oracle.Difference
	must.That(t, errors.As(err, &d), "episode %d: %v", episode, err)
	r.Patience = 3 * time.Second
	short, err := r.Shrink(p, err, 40*time.Second)
	file := filepath.Join(os.TempDir(), fmt.Sprintf("oracle-%d.txt", time.Now().UnixNano()))
	text := "# Found by random programs, shrunk.\n#\n# " + strings.ReplaceAll(err.Error(), "\n", "\n# ") +
		"\n\n" + short.String()
	expect.OK(t, os.WriteFile(file, []byte(text), 0o600))
	t.Fatalf("episode %d: %v\nprogram (written to %s; when the cause is mended, keep it in testdata):\n%s",
		episode, err, file, short)
}
