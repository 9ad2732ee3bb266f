//go:build stock && apps

package stock

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// house is one ClickHouse server.
type house struct {
	url string
	*process
}

// ask() runs one statement and returns its output.
func (h house) ask(statement string) (string, error) {
	c := http.Client{Timeout: 90 * time.Second}
	r, err := c.Post(h.url, "text/plain", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, b)
	}
	return strings.TrimSpace(string(b)), err
}

func startHouse(t *testing.T, c application, id int) house {
	t.Helper()
	dir, p := t.TempDir(), ports(t, 3)
	var nodes strings.Builder
	for _, s := range c.Servers {
		fmt.Fprintf(&nodes, "<node><host>127.0.0.1</host><port>%s</port></node>\n", port(s.Client))
	}
	users := write(t, filepath.Join(dir, "users.xml"), `<yandex>
<profiles><default/></profiles><quotas><default/></quotas>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
</yandex>
`)
	config := write(t, filepath.Join(dir, "config.xml"), fmt.Sprintf(`<yandex>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host><http_port>%s</http_port><tcp_port>%s</tcp_port>
<interserver_http_port>%s</interserver_http_port><interserver_http_host>127.0.0.1</interserver_http_host>
<path>%[4]s/</path><tmp_path>%[4]s/tmp/</tmp_path><format_schema_path>%[4]s/schema/</format_schema_path>
<users_config>%s</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>16777216</mark_cache_size>
<macros><replica>%d</replica></macros>
<zookeeper>%s<session_timeout_ms>10000</session_timeout_ms></zookeeper>
</yandex>
`, port(p[0]), port(p[1]), port(p[2]), dir, users, id, nodes.String()))
	h := house{"http://" + p[0], spawn(t, fmt.Sprintf("clickhouse-%d", id), nil, "/usr/sbin/clickhouse-server",
		"--config-file="+config)}
	within(t, 30*time.Second, "ClickHouse answers", func() error { _, err := h.ask("SELECT 1"); return err })
	return h
}

// TestApplicationClickHouse fills a replicated table from both replicas at once. A writer sends a refused
// block again. By the block's checksum in ZooKeeper, ClickHouse knows whether it already has the block. At
// the end each row is there once, on both replicas. If one replica is asked for a merge, the other makes it
// too.
func TestApplicationClickHouse(t *testing.T) {
	t.Parallel()
	needApp(t, "/usr/sbin/clickhouse-server")
	c := start(t)
	houses := []house{startHouse(t, c, 1), startHouse(t, c, 2)}
	for _, h := range houses {
		must.Get(h.ask(`CREATE TABLE jobs (day Date, writer UInt32, n UInt64) ENGINE = ReplicatedMergeTree('/clickhouse/tables/jobs', '{replica}') PARTITION BY day ORDER BY (writer, n)`))(t)
	}
	const rows = 100
	var blocks atomic.Int64
	stop, done := make(chan struct{}), make(chan int64, len(houses))
	for i, h := range houses {
		go func() {
			var n, refused int64
			defer func() { done <- n; t.Logf("writer %d: %d blocks, given again %d times", i+1, n, refused) }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := h.ask(fmt.Sprintf(
					"INSERT INTO jobs (day, writer, n) SELECT toDate('2026-01-01'), %d, number + %d FROM system.numbers "+
						"LIMIT %d", i+1, n*rows, rows))
				if err != nil {
					refused++
					time.Sleep(50 * time.Millisecond)
					continue
				}
				n++
				blocks.Add(1)
			}
		}()
	}
	// Add the column before any session is lost. In this release of ClickHouse, a replica that has lost a
	// session accepts no more changes of columns until it restarts. That is so on ZooKeeper, too.
	expect.OK(t, expect.Err(houses[0].ask("ALTER TABLE jobs ADD COLUMN note String")))
	c.killLeaders(blocks.Load, 10)
	close(stop)
	var total int64
	for range houses {
		total += <-done
	}
	expect := func(what, statement, want string) {
		t.Helper()
		for i, h := range houses {
			within(t, 30*time.Second, fmt.Sprintf("%s, on replica %d", what, i+1), func() error {
				got, err := h.ask(statement)
				if err == nil && got != want {
					err = fmt.Errorf("%q, not %q", got, want)
				}
				return err
			})
		}
	}
	expect("each row", "SELECT uniqExact(writer, n) FROM jobs", fmt.Sprint(total*rows))
	expect("the new column", "SELECT count() FROM system.columns WHERE table = 'jobs' AND name = 'note'", "1")
	expect("none waits, none is read-only",
		"SELECT is_readonly, is_session_expired, queue_size, total_replicas, active_replicas FROM system.replicas",
		"0\t0\t0\t2\t2")
	// ClickHouse refuses a merge until the replica that plans the merges is back.
	within(t, 30*time.Second, "a merge is asked for", func() error {
		_, err := houses[1].ask("OPTIMIZE TABLE jobs FINAL")
		return err
	})
	expect("merged", "SELECT count() FROM system.parts WHERE table = 'jobs' AND active", "1")
	// Only now each row must be there once. Before the merge, a block may be there twice if its commit was
	// lost; the merge drops it.
	expect("each row once", "SELECT count(), uniqExact(writer, n) FROM jobs",
		fmt.Sprintf("%d\t%[1]d", total*rows))
	var sums []string
	for _, h := range houses {
		sum := must.Get(h.ask("SELECT count(), sum(cityHash64(writer, n, note)) FROM jobs"))(t)
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Errorf("the replicas differ: %q", sums)
	}
}
