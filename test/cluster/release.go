package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// FirstRelease is the first release. It has no tickets, and lacks the rules with which a new cluster now
// begins.
const FirstRelease = "0.1.0"

// Releases returns the recorded releases, oldest first.
func Releases(t testing.TB) []string {
	t.Helper()
	var all []string
	for version := range recorded(t) {
		all = append(all, version)
	}
	slices.Sort(all)
	return all
}

// recorded() returns the commit of each release that the release file records.
func recorded(t testing.TB) map[string]string {
	t.Helper()
	root := must.Get(ModuleRoot())(t)
	list := must.Get(os.ReadFile(filepath.Join(root, "cmd/internal/release/RELEASES")))(t)
	all := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(line, "#") {
			all[f[0]] = f[1]
		}
	}
	return all
}

// Release builds the programs of a release from its commit into the directory that it returns.
func Release(t testing.TB, version string) (dir string) {
	t.Helper()
	commit := recorded(t)[version]
	must.That(t, commit != "", "RELEASES records no commit of release %s", version)
	root := must.Get(ModuleRoot())(t)
	git := func(args ...string) ([]byte, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		return cmd.Output()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		why := "RELEASE " + version + " IS NOT TESTED: this copy of the sources has no commit " + commit +
			"; a shallow clone gets it by git fetch --unshallow"
		fmt.Fprintln(os.Stderr, why)
		t.Skip(why)
	}
	sources := must.Get(git("archive", commit))(t)
	dir = t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(sources)
	out, err := unpack.CombinedOutput()
	must.OK(t, err, "unpack: %s", out)
	build := exec.Command("go", "build", "-o", dir, "./cmd/zlockd", "./cmd/zlock")
	build.Dir = dir
	out, err = build.CombinedOutput()
	must.OK(t, err, "build release %s: %s", version, out)
	return dir
}
