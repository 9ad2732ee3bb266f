package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestTheManualNamesEveryFlag keeps docs/operations.md from going stale.
func TestTheManualNamesEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	for _, g := range flagGroups(new(settings)) {
		g.flags.VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(manual, "`--"+f.Name) {
				t.Errorf("--%s is not in the manual", f.Name)
			}
		})
	}
}
