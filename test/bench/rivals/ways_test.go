package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's binary act as the holder that is killed, as the command's own binary does.
func TestMain(m *testing.M) {
	if len(os.Args) == 7 && os.Args[1] == "-hold" {
		if err := holdUntilKilled(os.Args[2], os.Args[4], os.Args[6]); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// Each installed way fills its column of the table. The rest of the page stays.
func TestWaysFillTheirTable(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	old := "before\n<!-- ways -->\nold\n<!-- end of ways -->\nbehind\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &settings{rounds: 1, duration: 50 * time.Millisecond, write: page,
		only: "zlockd,Redis,PostgreSQL,flock"}
	if err := measureWays(s, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !strings.HasPrefix(text, "before\n<!-- ways -->\n## A lock") || strings.Contains(text, "old\n") ||
		!strings.HasSuffix(text, "<!-- end of ways -->\nbehind\n") {
		t.Errorf("the page is\n%s", text)
	}
	for line := range strings.Lines(text) {
		if cells := strings.Count(line, "|"); cells > 0 && cells != strings.Count(s.only, ",")+3 {
			t.Errorf("a row of %d bars: %s", cells, line)
		}
	}
	// The row says for each way what becomes of a hold when the server dies.
	for _, line := range []string{"| a hold from before is then | kept | kept | **lost** | – |"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

func TestEachWayHasAnOpenerAndSaysWhatItLoses(t *testing.T) {
	for name := range loses {
		if openerOf(name) == nil {
			t.Errorf("%s has no opener", name)
		}
	}
	for _, k := range kinds {
		if loses[k.name] == "" {
			t.Errorf("nothing says what %s loses", k.name)
		}
	}
}
