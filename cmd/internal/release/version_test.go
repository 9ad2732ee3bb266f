package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestVersionOfSources runs deploy/version.sh in copies of a small repository. Only sources at the tag of a
// release have the version of that release. All other versions sort before the next release.
func TestVersionOfSources(t *testing.T) {
	script := must.Get(os.ReadFile("../../../deploy/version.sh"))(t)
	const recorded = "0.1.0 7cd01254741c2c8336c3d3d7b22263d321b59d35\n"
	const git = "-git20261128.004512.COMMIT"
	for _, c := range []struct {
		name, list     string
		tags           []string
		noGit, changed bool
		want           string
	}{
		{"no tag", "0.2.0\n" + recorded, nil, false, false, "0.2.0" + git},
		{"tag of the release", "0.2.0\n" + recorded, []string{"other", "v0.2.0"}, false, false, "0.2.0"},
		{"tag of another release", "0.2.0\n" + recorded, []string{"v0.1.0"}, false, false, "0.2.0" + git},
		{"tag that begins as the release's", "0.2.0\n", []string{"v0.2.0-rc1"}, false, false, "0.2.0" + git},
		{"behind a release", recorded, nil, false, false, "0.2.0" + git},
		{"changed", "0.2.0\n", nil, false, true, "0.2.0" + git + ".dirty"},
		{"tag, and changed", "0.2.0\n", []string{"v0.2.0"}, false, true, "0.2.0" + git + ".dirty"},
		{"without git", "0.2.0\n", nil, true, false, "0.2.0-dev"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				file = filepath.Join(dir, file)
				must.OK(t, os.MkdirAll(filepath.Dir(file), 0o777))
				must.OK(t, os.WriteFile(file, []byte(text), 0o666))
			}
			run := func(name string, args ...string) string {
				cmd := exec.Command(name, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null",
					"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
					"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a",
					"GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=2026-11-28T02:45:12+0200")
				out, err := cmd.CombinedOutput()
				must.OK(t, err, "%v: %s", args, out)
				return string(out)
			}
			write("deploy/version.sh", string(script))
			write("cmd/internal/release/RELEASES", "# a comment\n"+c.list)
			want := c.want
			if !c.noGit {
				run("git", "init", "-q")
				run("git", "add", ".")
				run("git", "commit", "-q", "-m", "first")
				for _, tag := range c.tags {
					run("git", "tag", tag)
				}
				commit := run("git", "rev-parse", "--short=7", "HEAD")
				want = strings.Replace(want, "COMMIT", strings.TrimSpace(commit), 1)
			}
			if c.changed {
				write("cmd/internal/release/RELEASES", c.list)
			}
			got := run("sh", "deploy/version.sh")
			expect.Equal(t, got, want+"\n", "the version of the sources is")
			defer func(was string) { set = was }(set)
			set = want
			expect.Equal(t, Version(), want, "--version says")
		})
	}
}
