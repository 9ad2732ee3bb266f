//go:build stock

package stock

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// prometheus is a running Prometheus that scrapes servers each second.
type prometheus struct {
	t    *testing.T
	base string
}

func startPrometheus(t *testing.T, e ...*cluster.Ensemble) *prometheus {
	t.Helper()
	need(t, "/usr/bin/prometheus")
	ports := must.Get(cluster.FreePorts(1))(t)
	dir := t.TempDir()
	var targets []string
	for _, e := range e {
		for _, s := range e.Servers {
			targets = append(targets, strconv.Quote(s.Admin))
		}
	}
	config := fmt.Sprintf(
		"global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: zlockd\n  "+
			"static_configs: [{targets: [%s]}]\n",
		strings.Join(targets, ", "))
	must.OK(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	cmd := exec.Command("/usr/bin/prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", ports[0], "--log.level", "warn")
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &prometheus{t, "http://" + ports[0]}
}

// ask() returns the values of an expression's series. It ignores errors of Prometheus, for example while it
// starts.
func (p *prometheus) ask(expr string) (values []float64) {
	p.t.Helper()
	r, err := http.Get(p.base + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if r.StatusCode == http.StatusServiceUnavailable {
		return nil
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s: %v %s", expr, err, answer.Error)
	}
	for _, s := range answer.Data.Result {
		text, _ := s.Value[1].(string)
		v := must.Get(strconv.ParseFloat(text, 64))(p.t)
		values = append(values, v)
	}
	return values
}

// await() waits until an expression has a series with a value for which yes() returns true.
func (p *prometheus) await(what, expr string, yes func(float64) bool) {
	p.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, v := range p.ask(expr) {
			if yes(v) {
				return
			}
		}
	}
	p.t.Errorf("%s: %s has no such series: %v", what, expr, p.ask(expr))
}

// silence() waits until an alert rule finds nothing. Earlier samples may still be in the rule's window, and a
// server that stalled for a moment looks slow or down to Prometheus. Before each new query silence() calls
// calm(), unless `calm` is nil.
func (p *prometheus) silence(what, expr string, calm func()) {
	p.t.Helper()
	got := p.ask(expr)
	for end := time.Now().Add(time.Minute); len(got) > 0 && time.Now().Before(end); got = p.ask(expr) {
		if calm != nil {
			calm()
		}
		time.Sleep(200 * time.Millisecond)
	}
	expect.That(p.t, len(got) <= 0, "%s fires without a cause: %v", what, got)
}

// exists() accepts every value. It is for expressions that compare: for them Prometheus returns only the
// series for which the comparison is true.
func exists(float64) bool  { return true }
func moved(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// handOffs lets two clients contend for a lock until each has held it n times.
func handOffs(t *testing.T, e *cluster.Ensemble, n int) {
	t.Helper()
	var mutexes []*client.Mutex
	for range 2 {
		c := must.Get(client.Dial(t.Context(), e.Addrs()))(t)
		defer c.Close(t.Context())
		mutexes = append(mutexes, c.Mutex("/app/lock"))
	}
	done := make(chan error, len(mutexes))
	for _, m := range mutexes {
		go func() {
			for range n {
				l, err := m.Lock(t.Context())
				if err != nil {
					done <- err
					return
				}
				if err := l.Unlock(t.Context()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range mutexes {
		must.OK(t, <-done)
	}
}

// TestBoards runs three servers and a Prometheus that scrapes them. After load, a snapshot, an election and a
// restart it sends Prometheus every query of our board, of the public boards and of the public alert rules.
// Each query must return a series, and a value that load or an election changes must have changed. The public
// alerts are silent until their cause occurs.
func TestBoards(t *testing.T) {
	o := cluster.Options{Kind: cluster.Zlockd, Nodes: 3, Flags: []string{"--snapshot-entries", "40",
		"--backup-dir", t.TempDir()}}
	e := cluster.Run(t, o)
	p := startPrometheus(t, e)
	const up = `count(up{job="zlockd"} == 1)`
	p.await("three servers", up, func(v float64) bool { return v == 3 })

	hold := must.Get(client.Dial(t.Context(), e.Addrs()))(t)
	defer hold.Close(t.Context())
	held := must.Get(hold.Mutex("/other/lock").Lock(t.Context()))(t)
	defer held.Unlock(t.Context())
	handOffs(t, e, 30)
	p.await("scraped since", `sum(zlockd_lock_grants_total) > 0`, exists)

	// The public rule for elections would also find the election at which the cluster formed, because its window
	// is longer than this test. So the test checks only that the number of elections rises at the servers that
	// stay.
	led := e.WaitLeader()
	counted := fmt.Sprintf(`sum(election_time_count{instance!=%q})`, led.Admin)
	elections := p.ask(counted)
	for _, a := range golden.Alerts() {
		if a.Panel == "a leader election happens" || a.Panel == "leader unavailable" {
			continue
		}
		p.silence(a.Board+", "+a.Panel, a.Expr+" "+a.When, func() {
			for _, s := range e.Servers {
				s.Word("srst") // the average latency counts from this reset
			}
		})
	}

	// Wait until each server has written a snapshot. The dead server reads its snapshot when it starts again.
	p.await("a snapshot on each", `count(zlockd_snapshot_zxid > 0) == 3`, exists)
	led.Kill()
	for _, a := range golden.Alerts() {
		switch a.Panel {
		case "server is down", "missing quorum":
			p.await(a.Panel, a.Expr+" "+a.When, exists)
		}
	}
	p.await("another leader", `sum(zk_server_leader) == 1`, exists)
	must.Equal(t, len(elections), 1, "elections: %v", elections)
	p.await("elections", fmt.Sprintf(`%s > %v`, counted, elections[0]), exists)
	for _, a := range golden.Alerts() {
		if a.Panel == "a leader election happens" || a.Panel == "leader unavailable" {
			p.await(a.Panel, a.Expr+" "+a.When, exists)
		}
	}
	must.OK(t, e.StartAll())
	p.await("three servers again", up, func(v float64) bool { return v == 3 })
	handOffs(t, e, 30)

	queries := must.Get(golden.Ours())(t)
	for _, q := range append(queries, golden.Public()...) {
		p.await(q.Board+", "+q.Panel, golden.Expand(q.Expr), exists)
	}
	for _, name := range strings.Fields(
		`packets_received packets_sent commit_count proposal_count election_time_count looking_count
		snapshottime_count fsynctime_count
		updatelatency_count readlatency_count propagation_latency_count proposal_latency_count
		quorum_ack_latency_count sync_processor_batch_size_sum
		startup_txns_loaded_count startup_snap_load_time_count dbinittime_count connection_request_count
		bytes_received_count node_deleted_watch_count_sum
		leader_unavailable_time_count process_cpu_seconds_total write_per_namespace_sum
		read_per_namespace_sum leader_uptime
		zlockd_locks_held zlockd_lock_grants_total zlockd_connection_ends_total zlockd_snapshot_zxid`) {
		p.await("it moves", name, moved)
	}
}

// watched() starts three servers, and creates nodes with names that some monitoring programs cannot read.
func watched(t *testing.T) *cluster.Ensemble {
	t.Helper()
	e := cluster.Run(t, cluster.Options{Kind: cluster.Zlockd, Nodes: 3})
	c := must.Get(zk.Dial(t.Context(), e.Addrs(), zk.Options{}))(t)
	t.Cleanup(func() { c.Close(t.Context()) })
	for _, name := range []string{"/plain", "/with space", "/with.dot-and:colon", "/über", "/a=b{c}"} {
		must.Get(c.Create(t.Context(), zk.Create{Path: name, Data: []byte("x"),
			ACL: zk.WorldACL(zk.PermAll)}))(t)
	}
	// A server may apply these creates a little later than the leader. Sync waits until it has them.
	for _, s := range e.Servers {
		at := must.Get(zk.Dial(t.Context(), s.Client, zk.Options{}))(t)
		must.OK(t, at.Sync(t.Context(), "/"))
		must.OK(t, at.Close(t.Context()))
	}
	return e
}

// output() runs a program and returns what it printed.
func output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", args[0], err, out, stderr.String())
	}
	return string(out)
}

// TestCollectd runs collectd's zookeeper plugin beside each server.
func TestCollectd(t *testing.T) {
	beside(t)
	need(t, "/usr/sbin/collectd", "/usr/lib/collectd/zookeeper.so")
	e := watched(t)
	for _, s := range e.Servers {
		dir := t.TempDir()
		host, port, _ := strings.Cut(s.Client, ":")
		conf := filepath.Join(dir, "collectd.conf")
		text := fmt.Sprintf("Hostname h\nFQDNLookup false\nInterval 1\nBaseDir %[1]q\nPIDFile "+
			"\"%[1]s/pid\"\nTypesDB \"/usr/share/collectd/types.db\"\nLoadPlugin csv\n"+
			"<Plugin csv>\n DataDir \"%[1]s\"\n</Plugin>\nLoadPlugin zookeeper\n<Plugin zookeeper>\n Host %[2]q\n "+
			"Port %[3]q\n</Plugin>\n", dir, host, port)
		must.OK(t, os.WriteFile(conf, []byte(text), 0o600))
		cmd := exec.Command("/usr/sbin/collectd", "-f", "-C", conf)
		must.OK(t, cmd.Start())
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		want := map[string]string{"gauge-znode": "9", "latency-avg": "", "latency-min": "", "latency-max": "",
			"packets-received": "", "packets-sent": "",
			"current_connections": "", "requests-outstanding": "0", "gauge-watch": "0", "gauge-ephemerals": "0",
			"bytes-approximate_data_size": "",
			"file_handles-open":           "", "file_handles-max": ""}
		if s.Mode() == "leader" {
			want["count-followers"], want["count-synced_followers"], want["count-pending_syncs"] = "2", "2", "0"
		}
		for name, value := range want {
			var got string
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if got = newest(filepath.Join(dir, "h", "zookeeper", name+"-2*")); got != "" &&
					(value == "" || got == value) {
					break
				}
			}
			if got == "" || value != "" && got != value {
				t.Errorf("%s (%s): %s is %q, not %q", s.Client, s.Mode(), name, got, value)
			}
		}
	}
}

// newest() returns the last number in a file of collectd. It returns "" before the first number.
func newest(pattern string) string {
	files, _ := filepath.Glob(pattern)
	if len(files) == 0 {
		return ""
	}
	b, _ := os.ReadFile(files[len(files)-1])
	m := regexp.MustCompile(`(?m)^[0-9.]+,([0-9]+)(\.[0-9]+)?$`).FindAllSubmatch(b, -1)
	if len(m) == 0 {
		return ""
	}
	return string(m[len(m)-1][1])
}

// TestZktop runs zktop in a terminal beside three servers.
func TestZktop(t *testing.T) {
	beside(t)
	need(t, "/usr/bin/zktop", "/usr/bin/python3")
	e := watched(t)
	out := output(t, "", "/usr/bin/python3", "-B", "testdata/screen.py", e.Addrs())
	for _, s := range e.Servers {
		if !regexp.MustCompile(`(?m)^server ` + s.Client + ` 3\.\d+\.\d+ ` + s.Mode() + ` 9 0x`).MatchString(out) {
			t.Errorf("zktop misreads %s, which is %s:\n%s", s.Client, s.Mode(), out)
		}
	}
	expect.Has(t, out, "Ensemble -- nodecount:9 ", "its screen")
}

// TestTelegraf reads three servers with Telegraf's zookeeper input, which gives
// up at the first line it does not know.
func TestTelegraf(t *testing.T) {
	beside(t)
	e := watched(t)
	program := filepath.Join(t.TempDir(), "telegraf")
	for try := range 5 { // repeat, because the download may fail
		get := exec.Command("go", "mod", "download")
		get.Dir = "testdata/telegraf"
		text, err := get.CombinedOutput()
		if err == nil {
			break
		}
		t.Logf("try %d: %v\n%s", try, err, text)
		time.Sleep(10 * time.Second)
	}
	output(t, "testdata/telegraf", "go", "build", "-o", program, ".")
	out := output(t, "", append([]string{program}, strings.Split(e.Addrs(), ",")...)...)
	for _, s := range e.Servers {
		_, port, _ := strings.Cut(s.Client, ":")
		for _, line := range []string{"znode_count int64 9", "avg_latency float64 ", "p99_updatelatency ",
			"cnt_election_time int64 ", "max_file_descriptor_count int64 "} {
			expect.Has(t, out, port+" "+s.Mode()+" "+line, "%s: no %q", s.Client, line)
		}
	}
	for line := range strings.Lines(out) {
		// A number must not become text: that would break the database to which Telegraf writes.
		if f := strings.Fields(line); len(f) < 5 || f[3] == "string" && f[2] != "version" && f[2] != "peer_state" {
			t.Errorf("not a number: %s", line)
		}
	}
	n := strings.Count(out, "\n")
	expect.That(t, n >= 1500, "%d fields of three servers", n)
}
