package backup_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Two clusters may use one directory for their backups, even if their servers have the same ids. Each server
// removes only its own files. These may come from an older release, whose names do not contain the cluster.
func TestClustersShareADirectory(t *testing.T) {
	dir := t.TempDir()
	whole := func(of *backup.Handler) []byte {
		return ask(of, "GET", "?format=zlockd", "digest super:secret").Body.Bytes()
	}
	ours, theirs := serve(t, 1), serve(t, 1)
	put := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, content, 0o600))
		return path
	}
	old := whole(handler(ours))
	cluster := must.Get(state.ReadCluster(bytes.NewReader(old)))(t)
	stay := []string{
		put("zlockd-1-20200101T000000Z-0000000000000001.backup", whole(handler(theirs))),
		put("zlockd-1-20200102T000000Z-0000000000000001.backup", []byte("cut off")),
		put("zlockd-1-20200103T000000Z-0000000000000001-theirs.backup", nil),
		put("zlockd-1-20200104T000000Z-0000000000000001-theirs.backup.tmp", nil),
		put("zlockd-1-20200105T000000Z-0000000000000001.backup.tmp", nil),
		put("zlockd-10-20200101T000000Z-0000000000000001.backup", old),
	}
	goes := []string{
		put("zlockd-1-20200101T000001Z-0000000000000001.backup", old),
		put("zlockd-1-20200102T000001Z-0000000000000001-"+cluster+".backup", old),
		put("zlockd-1-20200103T000001Z-0000000000000001.backup.tmp", old),
		put("zlockd-1-20200104T000001Z-0000000000000001-"+cluster+".backup.tmp", nil),
	}
	clock := newClock()
	k := taker(ours, clock, dir, 1, 0, 1)
	k.Cluster, k.Keep = func() string { return cluster }, 1
	stop := begin(t, k)
	for range 3 {
		clock.tick <- clock.now()
		clock.tick <- clock.now()
		clock.move(time.Hour)
	}
	stop()
	expect.Equal(t, k.State().Taken, 3, "taken")
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	for _, f := range stay {
		expect.That(t, there(f), "%s was removed", f)
	}
	for _, f := range goes {
		expect.That(t, !there(f), "%s was not removed", f)
	}
	of := func(f string) bool { return bytes.HasSuffix([]byte(f), []byte(cluster+".backup")) }
	expect.Equal(t, len(slices.DeleteFunc(backups(t, dir), func(f string) bool { return !of(f) })), 1, "kept")
}
