package golden

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update-docs", false, "write the tables that the documentation takes from the code")

// Table compares a table in a page of docs with the table that the code makes. A comment above the table
// names the command that updates the page.
func Table(t *testing.T, page, command, want string) {
	t.Helper()
	begin, end := "<!-- from the code: "+command+" -->\n", "<!-- end -->\n"
	text := must.Get(os.ReadFile(page))(t)
	before, rest, found := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	case old == want:
	case *update:
		must.OK(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
	default:
		t.Errorf("a table in %s differs from the code; to update it, run: %s. Want:\n%s", page, command, want)
	}
}

// Manual checks that man(1) shows a page without a warning, and that lexgrog, which makes the index of man
// pages, finds the name and the summary in it.
func Manual(t *testing.T, name, page string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(file, []byte(page), 0o600))
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("the program man is not installed")
	}
	for _, args := range [][]string{
		{"man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", file}, {"lexgrog", file},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANROFFSEQ=")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || said.Len() > 0 {
			t.Errorf("%s: %v %s", args[0], err, said.String())
		}
		if bare, _, _ := strings.Cut(name, "."); args[0] == "lexgrog" && !strings.Contains(string(out), bare) {
			t.Errorf("lexgrog finds %s", out)
		}
	}
}
