//go:build stock

package stock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// alertSeries has two series for each public rule, in promtool's notation: the rule fires with the first one
// and not with the second.
var alertSeries = map[string][2]string{
	"server is down":       {`up{job="zlockd"} 0x30`, `up{job="zlockd"} 1x30`},
	"too many znodes":      {`znode_count 1000001x30`, `znode_count 1000000x30`},
	"too many connections": {`num_alive_connections 51x30`, `num_alive_connections 50x30`},
	"znodes too big": {`approximate_data_size 1073741825x30`,
		`approximate_data_size 1073741824x30`},
	"too many watches":          {`watch_count 10001x30`, `watch_count 10000x30`},
	"a leader election happens": {`election_time_count 0+1x30`, `election_time_count 3x30`},
	"open too many files":       {`open_file_descriptor_count 301x30`, `open_file_descriptor_count 300x30`},
	// The values rise by this much per half minute.
	"fsync time is too long":      {`fsynctime_sum 0+3300x60`, `fsynctime_sum 0+2700x60`},
	"snapshot time is too long":   {`snapshottime_sum 0+3300x60`, `snapshottime_sum 0+2700x60`},
	"average latency is too high": {`avg_latency 101x30`, `avg_latency 100x30`},
	"memory filling up": {
		"jvm_memory_bytes_used{area=\"heap\"} 81x30\njvm_memory_bytes_max{area=\"heap\"} 100x30",
		"jvm_memory_bytes_used{area=\"heap\"} 80x30\njvm_memory_bytes_max{area=\"heap\"} 100x30"},
	"missing quorum": {"quorum_size{job=\"zlockd\"} 3x30\nup{job=\"zlockd\",instance=\"a\"} " +
		"1x30\nup{job=\"zlockd\",instance=\"b\"} 0x30",
		"quorum_size{job=\"zlockd\"} 2x30\nup{job=\"zlockd\",instance=\"a\"} " +
			"1x30\nup{job=\"zlockd\",instance=\"b\"} 1x30"},
	"leader unavailable": {`leader_unavailable_time_count{job="zlockd"} 0+1x30`,
		`leader_unavailable_time_count{job="zlockd"} 2x30`},
	"ZookeeperDown":          {`zk_up 0x30`, `zk_up 1x30`},
	"ZookeeperMissingLeader": {`zk_server_leader 0x30`, `zk_server_leader 1x30`},
	"ZookeeperTooManyLeaders": {"zk_server_leader{instance=\"a\"} 1x30\nzk_server_leader{instance=\"b\"} 1x30",
		"zk_server_leader{instance=\"a\"} 1x30\nzk_server_leader{instance=\"b\"} 0x30"},
	"ZookeeperNotOk":       {`zk_ruok 0x30`, `zk_ruok 1x30`},
	"JvmThreadsDeadlocked": {`jvm_threads_deadlocked 1x30`, `jvm_threads_deadlocked 0x30`},
}

// TestPublicAlertsWithPromtool tests each public rule unchanged, at its threshold. The series have the same
// names and units as those of the servers (see TestBoards and server.TestBoardsHaveTheirSeries).
func TestPublicAlertsWithPromtool(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/promtool")
	var rules, tests strings.Builder
	rules.WriteString("groups:\n- name: public\n  rules:\n")
	tests.WriteString("rule_files: [rules.yml]\nevaluation_interval: 30s\ntests:\n")
	for i, a := range golden.Alerts() {
		series, known := alertSeries[a.Panel]
		if !known {
			t.Errorf("%s, %s has no series here", a.Board, a.Panel)
			continue
		}
		name := fmt.Sprintf("A%d", i)
		fmt.Fprintf(&rules, "  - alert: %s\n    expr: '%s %s'\n", name, a.Expr, a.When)
		for fires, text := range series {
			fmt.Fprintf(&tests, "- interval: 30s\n  name: %q\n  input_series:\n", a.Panel)
			for line := range strings.Lines(text) {
				line = strings.TrimSpace(line)
				at := strings.LastIndexByte(line, ' ')
				fmt.Fprintf(&tests, "  - {series: '%s', values: '%s'}\n", line[:at], line[at+1:])
			}
			// promql_expr_test counts the alerts that fire, with any labels.
			want := "[{labels: '{}', value: 1}]"
			if fires == 1 {
				want = "[]"
			}
			fmt.Fprintf(&tests, "  promql_expr_test:\n  - {expr: "+
				"'count(ALERTS{alertname=\"%s\",alertstate=\"firing\"})', eval_time: 12m, exp_samples: %s}\n", name, want)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yml": rules.String(), "test.yml": tests.String()} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command("/usr/bin/promtool", "test", "rules", "test.yml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPublicAlertsByTheirCause makes the causes of the public rules occur on running servers. It leaves out
// the causes that TestBoards makes (a server that is down, elections, a missing quorum), full memory, and
// impossible causes: deadlocked threads, a server that does not answer imok. If a rule needs gigabytes or
// minutes, the test uses a smaller number.
func TestPublicAlertsByTheirCause(t *testing.T) {
	o := cluster.Options{Kind: cluster.Zlockd, Nodes: 3, Flags: []string{"--max-client-cnxns", "0",
		"--snapshot-entries", "500"}}
	e := cluster.Run(t, o)
	p := startPrometheus(t, e)
	p.await("three servers", `count(up{job="zlockd"} == 1)`, func(v float64) bool { return v == 3 })
	lead := e.WaitLeader()
	conn := must.Get(zk.Dial(t.Context(), lead.Client, zk.Options{}))(t)
	t.Cleanup(func() { conn.Close(context.Background()) })

	// rule() returns the query of a public rule. Pairs in `change` replace a number or a window of the rule.
	rule := func(name string, change ...string) string {
		for _, a := range golden.Alerts() {
			if a.Panel == name {
				return strings.NewReplacer(change...).Replace(a.Expr + " " + a.When)
			}
		}
		t.Fatalf("no rule %q", name)
		return ""
	}
	fires := func(name, expr string, cause func()) {
		t.Helper()
		p.silence(name, expr, nil)
		cause()
		p.await(name, expr, exists)
	}
	// create() tries again if a server that had stalled has closed the connection.
	create := func(c *zk.Conn, path string, data []byte) error {
		for {
			_, err := c.Create(t.Context(), zk.Create{Path: path, Data: data, Mode: zk.PersistentSequential})
			if !errors.Is(err, zk.ErrConnectionLost) {
				return err
			}
		}
	}
	put := func(n, size int) {
		data := make([]byte, size)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				expect.OK(t, create(conn, "/n-", data), "node %d", i)
			})
		}
		all.Wait()
	}
	p.await("scraped", `fsynctime_count`, exists)

	fires("snapshot time is too long", rule("snapshot time is too long", "[5m]", "[20s]", "> 100", "> 0"),
		func() {
			fires("too many znodes", rule("too many znodes", "1000000", "1000"), func() { put(1001, 10) })
		})
	fires("znodes too big", rule("znodes too big", "> 1024", "> 1"), func() { put(3, 500<<10) })
	// Set the threshold to 1 ms per second instead of 100 ms. The writes go on until the rule has seen them.
	seen, written := make(chan struct{}), make(chan struct{})
	fires("fsync time is too long", rule("fsync time is too long", "[1m]", "[5s]", "> 100", "> 1"), func() {
		go func() {
			defer close(written)
			for {
				select {
				case <-seen:
					return
				default:
					put(20, 10)
				}
			}
		}()
	})
	close(seen)
	<-written
	fires("too many watches", rule("too many watches"), func() {
		for i := range 10_001 {
			if _, _, err := conn.ExistsW(t.Context(), fmt.Sprintf("/none-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	})
	var open []*wire.Conn // all have sessions: a server closes a connection without a session after ten seconds
	fires("too many connections", rule("too many connections"), func() {
		for range 310 {
			open = append(open, must.Get(wire.Open(lead.Client))(t))
		}
		p.await("open too many files", rule("open too many files"), exists)
	})
	for _, c := range open {
		c.Close()
	}

	lead = e.WaitLeader()
	at := must.Get(zk.Dial(t.Context(), lead.Client, zk.Options{}))(t)
	fires("average latency is too high", rule("average latency is too high"), func() {
		lead.Word("srst")
		var followers []*cluster.Server
		for _, s := range e.Servers {
			if s != lead {
				followers = append(followers, s)
				s.Signal(syscall.SIGSTOP)
			}
		}
		const writes = 10
		late := make(chan error, writes)
		for range writes {
			go func() { late <- create(at, "/late-", nil) }()
		}
		// So long the writes must wait; a leader without followers still leads for 1 s.
		time.Sleep(400 * time.Millisecond)
		for _, s := range followers {
			s.Signal(syscall.SIGCONT)
		}
		for range writes {
			expect.OK(t, <-late, "a write that had to wait")
		}
	})
	at.Close(t.Context())

	for _, s := range e.Servers {
		if s != lead {
			s.Kill()
		}
	}
	for _, name := range []string{"ZookeeperDown", "ZookeeperMissingLeader"} {
		p.await(name, rule(name), exists)
	}
}

// TestTwoClustersInOneJobAreTooManyLeaders shows what the public rule can find at zlockd: two clusters in one
// job. When one cluster is gone, the rule is silent.
func TestTwoClustersInOneJobAreTooManyLeaders(t *testing.T) {
	beside(t)
	var two []*cluster.Ensemble
	for range 2 {
		e := cluster.Run(t, cluster.Options{Kind: cluster.Zlockd, Nodes: 3})
		two = append(two, e)
	}
	p := startPrometheus(t, two...)
	for _, a := range golden.Alerts() {
		if a.Panel != "ZookeeperTooManyLeaders" {
			continue
		}
		p.await("two leaders", a.Expr+" "+a.When, exists)
		for _, s := range two[1].Servers {
			s.Kill()
		}
		p.await("one leader", a.Expr, func(v float64) bool { return v == 1 })
		got := p.ask(a.Expr + " " + a.When)
		expect.That(t, len(got) <= 0, "one leader is too many: %v", got)
	}
}
