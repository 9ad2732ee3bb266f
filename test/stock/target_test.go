//go:build stock

package stock

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// target is the server, or the ensemble, under test.
type target struct {
	addrs    []string
	kind     cluster.Kind
	ensemble *cluster.Ensemble
	external bool // the test did not start the servers, so they may have data
}

// String returns the connect string.
func (g target) String() string { return strings.Join(g.addrs, ",") }

// startTarget starts the servers that ZLOCKD_STOCK_TARGET names, by default zlockd, and as many as
// ZLOCKD_STOCK_NODES says. They end with the test. If ZLOCKD_STOCK_SERVERS is set, it returns those servers.
func startTarget(t *testing.T, o cluster.Options) target {
	t.Helper()
	if list := os.Getenv("ZLOCKD_STOCK_SERVERS"); list != "" {
		return target{addrs: strings.Split(list, ","), kind: cluster.Zlockd, external: true}
	}
	o.Kind = cluster.Zlockd
	if k := os.Getenv("ZLOCKD_STOCK_TARGET"); k != "" {
		o.Kind = cluster.Kind(k)
	}
	if o.Nodes == 0 {
		o.Nodes, _ = strconv.Atoi(os.Getenv("ZLOCKD_STOCK_NODES"))
	}
	e := cluster.Run(t, o)
	return target{addrs: strings.Split(e.Addrs(), ","), kind: o.Kind, ensemble: e}
}

// generous() returns options that the recipe tests need. ZooKeeper has TTL nodes only if an option enables
// them. A super user makes checks of ACLs possible on both kinds of servers.
func generous() cluster.Options {
	const super = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // super:test
	return cluster.Options{
		JVM: []string{"-Dzookeeper.extendedTypesEnabled=true",
			"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + super},
		Flags: []string{"--super-digest", super},
	}
}

// need() fails the test if a program of the suite is not installed, because a suite that is skipped silently
// proves nothing. With ZLOCKD_STOCK_SKIP_MISSING=1 it skips the test.
func need(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		var err error
		if filepath.IsAbs(f) {
			_, err = os.Stat(f)
		} else {
			_, err = exec.LookPath(f)
		}
		if err == nil {
			continue
		}
		if os.Getenv("ZLOCKD_STOCK_SKIP_MISSING") != "" {
			t.Skipf("%s is not installed: run test/stock/install.sh", f)
		}
		t.Fatalf("%s is not installed: run test/stock/install.sh", f)
	}
}

// driver is a program that runs checks with one client library. The environment gives it the addresses: ZK of
// the servers, RELAY of the relay, REFEREE of the referee. It prints
//
//	ok NAME | fail NAME: WHY | skip NAME: WHY
//
// for each check and "done N" at the end.
type driver struct {
	name    string
	args    []string
	env     []string
	least   int // the smallest number of checks that the suite must run
	keys    int // how many critical sections its contenders must enter
	timeout time.Duration
}

// run() starts the driver against g and turns its lines into subtests.
func (d driver) run(t *testing.T, g target, args ...string) {
	t.Helper()
	ref := startReferee(t)
	ref.relay = startRelay(t, g.addrs)
	if d.timeout == 0 {
		d.timeout = 8 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	args = append(d.args[1:len(d.args):len(d.args)], args...)
	cmd := exec.CommandContext(ctx, d.args[0], args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "ZK="+g.String(), "RELAY="+ref.relay.addr(), "REFEREE="+ref.addr(),
		"SERVER_KIND="+string(g.kind), "FIRST="+g.addrs[0])
	cmd.Env = append(cmd.Env, d.env...)
	errFile := must.Get(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	defer errFile.Close()
	cmd.Stderr = errFile
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	checks, done, failed := 0, -1, false
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		name, why, _ := strings.Cut(rest, ": ")
		switch word {
		case "ok":
			checks++
			t.Run(name, func(t *testing.T) {})
		case "fail":
			checks++
			failed = true
			t.Run(name, func(t *testing.T) { t.Error(why) })
		case "skip":
			t.Run(name, func(t *testing.T) { t.Skip(why) })
		case "done":
			done, _ = strconv.Atoi(rest)
		default:
			t.Logf("%s: %s", d.name, in.Text())
		}
	}
	if err := cmd.Wait(); err != nil && !failed {
		t.Errorf("%s: %v", d.name, err)
		failed = true
	}
	if done != checks || checks < d.least {
		t.Errorf("%s ended early: %d checks seen, %d reported done, %d expected at least", d.name, checks, done,
			d.least)
		failed = true
	}
	if failed {
		if b, _ := os.ReadFile(errFile.Name()); len(b) > 0 {
			t.Logf("stderr of %s:\n%s", d.name, b[max(0, len(b)-8000):])
		}
	}
	ref.judge(t, d.keys)
}
