package proc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// lastRelease builds zlockd from the commit that the release file names for its newest recorded release.
func lastRelease(t *testing.T) (version, binary string) {
	t.Helper()
	root := must.Get(cluster.ModuleRoot())(t)
	list := must.Get(os.ReadFile(filepath.Join(root, "cmd/internal/release/RELEASES")))(t)
	var commit string
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(line, "#") {
			version, commit = f[0], f[1]
			break
		}
	}
	if commit == "" {
		t.Skip("no release is recorded yet")
	}
	archive := exec.Command("git", "archive", commit)
	archive.Dir = root
	sources, err := archive.Output()
	if err != nil {
		t.Skipf("this copy of the sources has no commit %s of release %s: %v", commit, version, err)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(sources)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "zlockd"), "./cmd/zlockd")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build release %s: %v\n%s", version, err, out)
	}
	return version, filepath.Join(dir, "zlockd")
}

// TestG24UpgradeAndDowngrade takes a cluster of the last release to this program, back, and to this
// program again, one server after the other and the leader last, while clients write.
func TestG24UpgradeAndDowngrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a release: runs without -short")
	}
	version, old := lastRelease(t)
	now := must.Get(cluster.Binary())(t)
	c := cluster.Run(t, cluster.Options{Nodes: 3, Binary: old})
	w := StartWriters(t, c, 2, 30*time.Second)
	for _, program := range []string{now, old, now} {
		order := slices.Clone(c.Servers)
		leader := c.WaitLeader()
		slices.SortStableFunc(order, func(a, b *cluster.Server) int {
			if a == leader {
				return 1
			}
			if b == leader {
				return -1
			}
			return 0
		})
		for _, s := range order {
			s.Stop()
			s.Args[0] = program
			s.Start()
			s.WaitServing(time.Minute)
			time.Sleep(300 * time.Millisecond) // for writes while both programs run
		}
		c.SameState()
	}
	w.Check(c)
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost")
	// This program reads offline the data of the last release, and the other way round.
	for _, s := range c.Servers {
		s.Stop()
	}
	if out, err := exec.Command(old, "verify", c.Servers[0].Data(), c.Servers[1].Data()).CombinedOutput(); err != nil {
		t.Errorf("release %s does not read the data of this program: %v\n%s", version, err, out)
	}
}
