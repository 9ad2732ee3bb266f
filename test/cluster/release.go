package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// LastRelease builds the programs of the newest release that the release file records, from its commit, into
// the directory that it returns.
func LastRelease(t testing.TB) (version, dir string) {
	t.Helper()
	root := must.Get(ModuleRoot())(t)
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
	git := func(args ...string) ([]byte, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		return cmd.Output()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		why := "THE LAST RELEASE IS NOT TESTED: this copy of the sources has no commit " + commit +
			" of release " + version + "; a shallow clone gets it by git fetch --unshallow"
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
	return version, dir
}
