//go:build stock

package main

import (
	"strings"
	"testing"
)

// The command leaves out libraries that are not installed, and measures all others.
func TestEveryLibraryIsMeasured(t *testing.T) {
	var out, log strings.Builder
	if err := compare(t.Context(), []string{"-quick"}, &out, &log); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), log.String())
	}
	text := out.String()
	for _, l := range libraries {
		if rows := strings.Count(text, "| "+l.what+" |"); rows != 2 && !strings.Contains(text, "Left out: "+
			l.name) {
			t.Errorf("%s: %d rows", l.name, rows)
		}
	}
	if strings.Contains(text, "failed") {
		t.Error(text)
	}
	t.Log(text)
}
