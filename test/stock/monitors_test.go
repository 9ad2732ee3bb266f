//go:build stock

package stock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// watched are three servers with nodes under names that programs stumble over.
func watched(t *testing.T) *cluster.Ensemble {
	t.Helper()
	e := cluster.Run(t, cluster.Options{Kind: cluster.Zlockd, Nodes: 3})
	c := must.Get(zk.Dial(t.Context(), e.Addrs(), zk.Options{}))(t)
	t.Cleanup(func() { c.Close(t.Context()) })
	for _, name := range []string{"/plain", "/with space", "/with.dot-and:colon", "/über", "/a=b{c}"} {
		must.Get(c.Create(t.Context(), zk.Create{Path: name, Data: []byte("x"),
			ACL: zk.WorldACL(zk.PermAll)}))(t)
	}
	// A server without clients hears of commits a little later.
	for _, s := range e.Servers {
		at := must.Get(zk.Dial(t.Context(), s.Client, zk.Options{}))(t)
		must.OK(t, at.Sync(t.Context(), "/"))
		must.OK(t, at.Close(t.Context()))
	}
	return e
}

// output runs a program and returns what it printed.
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

// newest returns the last number in a file of collectd's, "" before the first.
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
	e := watched(t)
	program := filepath.Join(t.TempDir(), "telegraf")
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
		// Numbers are numbers: a text among them breaks the database behind it.
		if f := strings.Fields(line); len(f) < 5 || f[3] == "string" && f[2] != "version" && f[2] != "peer_state" {
			t.Errorf("not a number: %s", line)
		}
	}
	if n := strings.Count(out, "\n"); n < 1500 {
		t.Errorf("%d fields of three servers", n)
	}
}
