//go:build stock && apps

package stock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/must"
)

// announced is a service that has told where it is, by an ephemeral node in
// the manner of Twitter's serversets and one in that of Airbnb's Nerve.
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
	if a.conn, err = zk.Dial(t.Context(), c.Addrs(), zk.Options{}); err != nil {
		t.Fatal(err)
	}
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

// TestPrometheus lets Prometheus find what to look at by serverset and Nerve
// nodes. It never loses a target when the leader dies, looks at each that is
// announced since and forgets each whose session has ended.
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

	// found returns the targets, as "job address", with those that answer.
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
		go func() { // looks all the while
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
		case <-time.After(2 * time.Second): // time for a client to find its connection gone and ask again
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
