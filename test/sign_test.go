package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// What make sign signs, users can check by the commands of SECURITY.md, and a change shows.
func TestSignedChecksumsCanBeChecked(t *testing.T) {
	if _, err := exec.LookPath("minisign"); err != nil {
		if os.Getenv("ZLTEST_REQUIRE_STOCK") != "" {
			t.Fatal("the program minisign is not installed")
		}
		t.Skip("the program minisign is not installed")
	}
	page := must.Get(os.ReadFile("../SECURITY.md"))(t)
	m := regexp.MustCompile("(?s)\n## Checking a download\n.*?\n```sh\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatal("SECURITY.md has no commands to check a download")
	}
	dir := t.TempDir()
	run := func(where, command string) error {
		cmd := exec.Command("sh", "-e", "-c", command)
		cmd.Dir = where
		out, err := cmd.CombinedOutput()
		t.Logf("%s\n%s", command, out)
		return err
	}
	must.OK(t, run(dir, "echo 1 >zlockd.tar.gz; sha256sum zlockd.tar.gz >SHA256SUMS; minisign -G -W -p key.pub -s key"))
	must.OK(t, run("..", "make --no-print-directory sign KEY="+filepath.Join(dir, "key")+" DIST="+dir))
	key := strings.Fields(string(must.Get(os.ReadFile(filepath.Join(dir, "key.pub")))(t)))
	commands := strings.Replace(string(m[1]), "PUBLIC-KEY", key[len(key)-1], 1)
	must.OK(t, run(dir, commands))
	for _, change := range []string{"echo 2 >zlockd.tar.gz", "sha256sum zlockd.tar.gz >SHA256SUMS"} {
		must.OK(t, run(dir, change))
		if run(dir, commands) == nil {
			t.Errorf("after %s nothing is found wrong", change)
		}
	}
}
