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

	"github.com/zlockd/zlockd/test/expect"
)

const python = "/usr/bin/python3" // Debian's, which sees Debian's packages

// TestTaskFlow posts jobs to a job board which three workers clear. Every job
// that the board took is done, and none twice.
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

// TestTooz runs three members of a group that stand for leader and count under
// a lock. No two are inside at once, no turn is lost, all see the same members
// and the same one leader at the end.
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
	// tooz counts the directory of the leader's lock as a member.
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
	if got := number("counter"); got != turns || turns == 0 {
		t.Errorf("the counter is %d after %d turns", got, turns)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "violation")); err == nil {
		t.Errorf("two held the lock at once: %s", b)
	}
	t.Logf("%d turns", turns)
}
