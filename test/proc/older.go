package proc

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

// Older is a commit of an earlier release of ours.
const Older = "8a3b1d8"

// BuildOlder builds zlockd as it was, where the repository has its history.
func BuildOlder(t testing.TB) (bin string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs servers as processes: make test-all")
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skipf("no repository here: git rev-parse: %v", err)
	}
	archive := exec.Command("git", "archive", Older)
	archive.Dir = string(bytes.TrimSpace(root))
	tar, err := archive.Output()
	if err != nil {
		t.Skipf("the repository has no commit %s here: git archive: %v", Older, err)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(tar)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	bin = filepath.Join(dir, "zlockd-older")
	build := exec.Command("go", "build", "-o", bin, "./cmd/zlockd")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v %s", err, out)
	}
	return bin
}
