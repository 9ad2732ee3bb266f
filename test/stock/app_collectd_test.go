//go:build stock && apps

package stock

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/must"
)

// TestCollectd has collectd's zookeeper plugin read each server, each second.
// When the leader dies its numbers stop and the next leader's begin to count
// followers; when it is back it is read again, and counts every node.
func TestApplicationCollectd(t *testing.T) {
	t.Parallel()
	needApp(t, "/usr/sbin/collectd", "/usr/lib/collectd/zookeeper.so")
	c := start(t)
	conn, err := zk.Dial(t.Context(), c.Addrs(), zk.Options{})
	must.OK(t, err)
	defer conn.Close(t.Context())
	dirs := map[int]string{}
	for _, s := range c.Servers {
		dir := t.TempDir()
		dirs[s.ID] = dir
		conf := write(t, filepath.Join(dir, "collectd.conf"), fmt.Sprintf(`Hostname h
FQDNLookup false
Interval 1
MaxReadInterval 1
BaseDir %[1]q
PIDFile "%[1]s/pid"
TypesDB "/usr/share/collectd/types.db"
LoadPlugin csv
<Plugin csv>
 DataDir %[1]q
</Plugin>
LoadPlugin zookeeper
<Plugin zookeeper>
 Host "127.0.0.1"
 Port %[2]q
</Plugin>
`, dir, port(s.Client)))
		spawn(t, fmt.Sprintf("collectd-%d", s.ID), nil, "/usr/sbin/collectd", "-f", "-C", conf)
	}
	// last returns the newest number of a value and when it was read.
	last := func(id int, name string) (value float64, at float64) {
		files, _ := filepath.Glob(filepath.Join(dirs[id], "h", "zookeeper", name+"-2*"))
		if len(files) == 0 {
			return -1, 0
		}
		b, _ := os.ReadFile(files[len(files)-1])
		rows := strings.Split(strings.TrimSpace(string(b)), "\n")
		when, number, _ := strings.Cut(rows[len(rows)-1], ",")
		at, _ = strconv.ParseFloat(when, 64)
		if value, err = strconv.ParseFloat(number, 64); err != nil {
			return -1, 0
		}
		return value, at
	}
	reads := func(id int, name string, want float64, since time.Time) {
		t.Helper()
		within(t, 30*time.Second, fmt.Sprintf("collectd reads %s of server %d", name, id), func() error {
			if got, at := last(id, name); got != want || at <= float64(since.UnixMilli())/1000 {
				return fmt.Errorf("%v at %.3f", got, at)
			}
			return nil
		})
	}
	const before = 4 // "/", "/zookeeper" and what is below it
	for round := range kills {
		now := time.Now()
		must.Get(conn.Create(t.Context(), zk.Create{Path: fmt.Sprintf("/n%d", round)}))(t)
		for _, s := range c.Servers {
			reads(s.ID, "gauge-znode", float64(before+round+1), now)
		}
		reads(c.Leader().ID, "count-synced_followers", 2, now)

		dead, _ := c.killLeader()
		now = time.Now()
		reads(c.Leader().ID, "count-synced_followers", 1, now)
		if _, at := last(dead.ID, "gauge-znode"); at > float64(now.UnixMilli())/1000+1 {
			t.Errorf("numbers of server %d after its death", dead.ID)
		}
		must.OK(t, c.StartAll())
		now = time.Now()
		reads(dead.ID, "gauge-znode", float64(before+round+1), now)
		reads(c.Leader().ID, "count-synced_followers", 2, now)
	}
}
