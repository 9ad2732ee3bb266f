//go:build stock && apps

package stock

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const python = "/usr/bin/python3" // Debian's Python, which finds Debian's packages

// TestApplicationTaskFlow posts jobs to a job board. Three workers do the jobs. Each job that the board
// accepted is done, and none is done twice.
func TestApplicationTaskFlow(t *testing.T) {
	t.Parallel()
	needApp(t, "/usr/lib/python3/dist-packages/taskflow", "/usr/lib/python3/dist-packages/kazoo")
	c := start(t)
	dir := t.TempDir()
	posted, done := filepath.Join(dir, "posted"), filepath.Join(dir, "done")
	write(t, done, "")
	for i := range 3 {
		name := fmt.Sprintf("worker-%d", i+1)
		spawn(t, name, nil, python, "-W", "ignore", "testdata/apps/jobs.py", "work", c.Addrs(), done, name)
	}
	poster := spawn(t, "poster", nil, python, "-W", "ignore", "testdata/apps/jobs.py", "post", c.Addrs(), posted,
		done)
	c.killLeaders(func() int64 { return int64(len(lines(t, done))) }, 15)
	poster.kill()
	within(t, time.Minute, "every job is done", func() error {
		did := lines(t, done)
		for _, job := range lines(t, posted) {
			if !slices.Contains(did, job) {
				return fmt.Errorf("%s is not", job)
			}
		}
		return nil
	})
	did := lines(t, done)
	slices.Sort(did)
	for i, job := range did[1:] {
		expect.That(t, job != did[i], "%s was done twice", job)
	}
	t.Logf("%d jobs posted, %d done", len(lines(t, posted)), len(did))
}

// TestApplicationTooz runs three members of a group that stand for leader and count under a lock. Two members
// never hold the lock at once, and no increment is lost. At the end all see the same members and the same
// leader.
func TestApplicationTooz(t *testing.T) {
	t.Parallel()
	needApp(t, "/usr/lib/python3/dist-packages/tooz", "/usr/lib/python3/dist-packages/kazoo")
	c := start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "counter"), "0\n")
	names := []string{"ann", "ben", "cat"}
	var members []*process
	for _, name := range names {
		members = append(members, spawn(t, name, nil, python, "-W", "ignore", "testdata/apps/group.py", c.Addrs(),
			dir, name))
	}
	number := func(name string) int64 {
		f := lines(t, filepath.Join(dir, name))
		if len(f) != 1 {
			return 0
		}
		n, _ := strconv.ParseInt(f[0], 10, 64)
		return n
	}
	// Each member lists the members, then the leader. tooz also lists the directory of the leader's lock,
	// `leader`, as a member.
	sees := func(name string) string { return strings.Join(lines(t, filepath.Join(dir, name+".sees")), " ") }
	agree := func() error {
		for _, name := range names {
			if s := sees(name); s != sees(names[0]) || !strings.HasPrefix(s, strings.Join(names, " ")+
				" leader led by ") || strings.HasSuffix(s, "nobody") {
				return fmt.Errorf("%s sees %q, %s sees %q", name, s, names[0], sees(names[0]))
			}
		}
		return nil
	}
	within(t, 30*time.Second, "all see one leader", agree)
	leader := sees("ann")
	c.killLeaders(func() int64 { return number("counter") }, 20)
	within(t, 30*time.Second, "all see one leader again", agree)
	expect.Equal(t, sees("ann"), leader, "no session ended, but the group's leader changed")
	var turns int64
	for i, m := range members {
		expect.OK(t, m.cmd.Process.Signal(syscall.SIGTERM))
		m.wait(t, 30*time.Second)
		turns += number(names[i] + ".turns")
	}
	got := number("counter")
	expect.That(t, got == turns && turns != 0, "the counter is %d after %d turns", got, turns)
	b, err := os.ReadFile(filepath.Join(dir, "violation"))
	expect.Fails(t, err, "two held the lock at once: %s", b)
	t.Logf("%d turns", turns)
}

// TestApplicationCollectd lets collectd's zookeeper plugin read each server every second. When the leader
// dies, the plugin gets no more numbers from it, and the next leader shows the number of its followers. When
// the dead server is back, the plugin reads its numbers again, and the number of nodes is complete.
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
	// last() returns the newest number that collectd has read of the value `name` at the server `id`, and the
	// time of that reading.
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
	const before = 4 // "/", "/zookeeper" and what is below it are there from the beginning
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
