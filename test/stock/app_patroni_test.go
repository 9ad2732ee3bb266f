//go:build stock && apps

package stock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// member is one PostgreSQL under Patroni.
type member struct {
	name, rest, sql string
	as              *syscall.Credential
	*process
}

// role() asks Patroni for the member's role. It returns "primary", "replica" or "".
func (m member) role() string {
	h := http.Client{Timeout: 5 * time.Second}
	for _, role := range []string{"primary", "replica"} {
		if r, err := h.Get("http://" + m.rest + "/" + role); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return role
			}
		}
	}
	return ""
}

// ask() runs one statement.
func (m member) ask(statement string) (string, error) {
	cmd := exec.Command("/usr/bin/psql", "-XAtqc", statement, "host=127.0.0.1 port="+port(m.sql)+
		" user=postgres password=secret dbname=postgres connect_timeout=2")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func startMember(t *testing.T, c application, dir, bin string, i int) member {
	t.Helper()
	p := ports(t, 2)
	m := member{name: fmt.Sprintf("pg%d", i), rest: p[0], sql: p[1], as: postgresUser(t)}
	home := filepath.Join(dir, m.name)
	must.OK(t, os.Mkdir(home, 0o700))
	if m.as != nil {
		must.OK(t, os.Chown(home, int(m.as.Uid), int(m.as.Gid)))
	}
	var hosts []string
	for _, s := range c.Servers {
		hosts = append(hosts, "'"+s.Client+"'")
	}
	config := write(t, filepath.Join(dir, m.name+".yml"), fmt.Sprintf(`scope: apps
name: %s
restapi: {listen: '%s', connect_address: '%[2]s'}
zookeeper: {hosts: [%[3]s]}
bootstrap:
  dcs: {ttl: 20, loop_wait: 1, retry_timeout: 3, maximum_lag_on_failover: 1048576, synchronous_mode: true, postgresql: {use_pg_rewind: false, parameters: {fsync: 'off'}}}
  initdb: [{encoding: UTF8}, {auth: trust}]
postgresql:
  listen: '%[4]s'
  connect_address: '%[4]s'
  data_dir: '%[5]s/data'
  bin_dir: '%[6]s'
  pgpass: '%[5]s/pgpass'
  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust', 'local all all trust']
  authentication: {superuser: {username: postgres, password: secret}, replication: {username: replicator, password: secret}}
  parameters: {unix_socket_directories: '%[5]s', shared_buffers: 16MB, max_connections: 20}
`, m.name, m.rest, strings.Join(hosts, ", "), m.sql, home, bin))
	m.process = spawn(t, m.name, m.as, "/usr/bin/patroni", config)
	return m
}

// TestApplicationPatroni runs two PostgreSQL servers; the application writes to the primary. When a leader of
// zlockd dies, the primary stays the same. When the primary dies together with the leader of zlockd, the
// other server becomes the primary, and has every acknowledged row.
func TestApplicationPatroni(t *testing.T) {
	t.Parallel()
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	needApp(t, "/usr/bin/patroni", "/usr/bin/psql")
	if len(versions) == 0 {
		needApp(t, "/usr/lib/postgresql")
	}
	c := start(t)
	dir, err := os.MkdirTemp("", "zlockd-patroni-") // a directory that user postgres may enter
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.OK(t, os.Chmod(dir, 0o755))
	bin := versions[len(versions)-1]
	first := startMember(t, c, dir, bin, 1)
	within(t, time.Minute, "the first is primary", func() error {
		if first.role() != "primary" {
			return fmt.Errorf("it is %q", first.role())
		}
		_, err := first.ask("CREATE TABLE IF NOT EXISTS jobs (n bigint PRIMARY KEY)")
		return err
	})
	second := startMember(t, c, dir, bin, 2)
	within(t, time.Minute, "the second follows in step", func() error {
		if second.role() != "replica" {
			return fmt.Errorf("it is %q", second.role())
		}
		if s, err := first.ask("SELECT sync_state FROM pg_stat_replication"); err != nil || s != "sync" {
			return fmt.Errorf("%q %w", s, err)
		}
		return nil
	})

	// While leaders of zlockd die, the application writes, and the test checks again and again that the first
	// server is the primary and the second is not.
	var rows, refused, looked atomic.Int64
	stop := make(chan struct{})
	done := make(chan struct{}, 2)
	every := func(f func()) {
		defer func() { done <- struct{}{} }()
		for {
			select {
			case <-stop:
				return
			default:
				f()
			}
		}
	}
	go every(func() {
		n := rows.Load() + 1
		if _, err := first.ask(fmt.Sprintf("INSERT INTO jobs VALUES (%d)", n)); err != nil {
			refused.Add(1)
			t.Log(err)
			time.Sleep(50 * time.Millisecond)
			return
		}
		rows.Store(n)
	})
	go every(func() {
		a, _ := first.ask("SELECT pg_is_in_recovery()")
		b, _ := second.ask("SELECT pg_is_in_recovery()")
		expect.That(t, a == "f" && b == "t", "the first is in recovery: %q, the second: %q", a, b)
		looked.Add(1)
		time.Sleep(100 * time.Millisecond)
	})
	c.killLeaders(rows.Load, 20)
	close(stop)
	<-done
	<-done
	if n := refused.Load(); n > 0 {
		t.Errorf("the primary refused %d of %d rows while leaders of zlockd died", n, rows.Load())
	}
	expect.Equal(t, must.Get(first.ask("SELECT timeline_id FROM pg_control_checkpoint()"))(t), "1",
		"the primary changed: timeline")

	at := time.Now()
	first.kill()
	c.killLeader()
	within(t, time.Minute, "the second takes over", func() error {
		if second.role() != "primary" {
			return fmt.Errorf("it is %q", second.role())
		}
		_, err := second.ask(fmt.Sprintf("INSERT INTO jobs VALUES (%d)", rows.Load()+1))
		return err
	})
	t.Logf("%d rows, the primary was looked at %d times; the second took over after %v", rows.Load(),
		looked.Load(), time.Since(at).Round(time.Millisecond))
	want := fmt.Sprintf("%d|%[1]d", rows.Load()+1)
	expect.Equal(t, must.Get(second.ask("SELECT count(*), max(n) FROM jobs"))(t), want,
		"rows after it, not %q", want)
}

// announced is a service that announces its address by two ephemeral nodes: one for Twitter's serversets and
// one for Airbnb's Nerve.
type announced struct {
	addr string
	conn *zk.Conn
}

func announce(t *testing.T, c application) announced {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "asked 1")
	}))
	t.Cleanup(web.Close)
	a := announced{addr: strings.TrimPrefix(web.URL, "http://")}
	var err error
	a.conn, err = zk.Dial(t.Context(), c.Addrs(), zk.Options{})
	must.OK(t, err)
	t.Cleanup(func() { a.conn.Close(t.Context()) })
	for path, text := range map[string]string{
		"/serverset/web/member_": `{"serviceEndpoint":{"host":"127.0.0.1","port":%s},"additionalEndpoints":{},"status":"ALIVE","shard":1}`,
		"/nerve/web/instance_":   `{"host":"127.0.0.1","port":%s,"name":"web"}`,
	} {
		r := zk.Create{Path: path, Data: fmt.Appendf(nil, text, port(a.addr)), Mode: zk.EphemeralSequential}
		within(t, 10*time.Second, "announced", func() error { _, err := a.conn.Create(t.Context(), r); return err })
	}
	return a
}

// TestApplicationPrometheus lets Prometheus find its targets by serverset and Nerve nodes. It loses no target
// when the leader dies, scrapes each newly announced target, and forgets each target whose session has ended.
func TestApplicationPrometheus(t *testing.T) {
	t.Parallel()
	needApp(t, "/usr/bin/prometheus")
	c := start(t)
	admin := must.Get(zk.Dial(t.Context(), c.Addrs(), zk.Options{}))(t)
	defer admin.Close(t.Context())
	for _, path := range []string{"/serverset", "/serverset/web", "/nerve", "/nerve/web"} {
		must.Get(admin.Create(t.Context(), zk.Create{Path: path}))(t)
	}
	services := []announced{announce(t, c), announce(t, c), announce(t, c)}

	dir, listen := t.TempDir(), ports(t, 1)[0]
	servers := `"` + strings.ReplaceAll(c.Addrs(), ",", `", "`) + `"`
	config := write(t, filepath.Join(dir, "prometheus.yml"),
		fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: serverset
  serverset_sd_configs: [{servers: [%s], paths: [/serverset/web], timeout: 5s}]
- job_name: nerve
  nerve_sd_configs: [{servers: [%[1]s], paths: [/nerve/web], timeout: 5s}]
`, servers))
	spawn(t, "prometheus", nil, "/usr/bin/prometheus", "--config.file="+config, "--storage.tsdb.path="+
		filepath.Join(dir, "data"), "--web.listen-address="+listen)

	// found() returns all targets, as "job address", and the targets that answer.
	found := func() (list, up []string) {
		r, err := http.Get("http://" + listen + "/api/v1/targets?state=active")
		if err != nil {
			return nil, nil
		}
		defer r.Body.Close()
		var answer struct {
			Data struct {
				ActiveTargets []struct {
					ScrapePool, Health string
					DiscoveredLabels   map[string]string
				}
			}
		}
		if json.NewDecoder(r.Body).Decode(&answer) != nil {
			return nil, nil
		}
		for _, a := range answer.Data.ActiveTargets {
			s := a.ScrapePool + " " + a.DiscoveredLabels["__address__"]
			list = append(list, s)
			if a.Health == "up" {
				up = append(up, s)
			}
		}
		slices.Sort(list)
		slices.Sort(up)
		return list, up
	}
	wanted := func() (list []string) {
		for _, s := range services {
			list = append(list, "serverset "+s.addr, "nerve "+s.addr)
		}
		slices.Sort(list)
		return list
	}
	all := func(when string) {
		t.Helper()
		at := time.Now()
		within(t, time.Minute, "all targets are found and answer "+when, func() error {
			if _, up := found(); !slices.Equal(up, wanted()) {
				return fmt.Errorf("%q, not %q", up, wanted())
			}
			return nil
		})
		t.Logf("%d targets after %v %s", len(wanted()), time.Since(at).Round(time.Millisecond), when)
	}
	all("at the start")
	for range kills {
		stop, lost := make(chan struct{}), make(chan []string, 1)
		go func() { // looks at the targets again and again
			want := wanted()
			for {
				select {
				case <-stop:
					lost <- nil
					return
				case <-time.After(20 * time.Millisecond):
				}
				if list, _ := found(); !slices.Equal(list, want) {
					lost <- list
					return
				}
			}
		}()
		c.killLeader()
		select {
		case list := <-lost:
			t.Errorf("targets are lost over the death of a leader: %q, not %q", list, wanted())
		case <-time.After(2 * time.Second): // time for a client to notice the lost connection and to ask again
			close(stop)
			<-lost
		}
		must.OK(t, services[0].conn.Close(t.Context()))
		services = append(services[1:], announce(t, c), announce(t, c))
		all("after a change without the dead leader")
		must.OK(t, c.StartAll())
		must.OK(t, services[0].conn.Close(t.Context()))
		services = services[1:]
		all("after a change with all three")
	}
}
