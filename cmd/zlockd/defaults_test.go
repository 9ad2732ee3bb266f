package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// Every default that --help shows is the value in force. Those that are part of a
// flag's text depend on other flags, and are tested with them.
func TestHelpShowsTheDefaultsInForce(t *testing.T) {
	shown := regexp.MustCompile(`\(default ([^)]*)\)`)
	byHand := map[string]bool{"heartbeat-timeout": true, "backup-interval": true, "min-session-timeout": true,
		"max-session-timeout": true, "snapshot-interval": true, "slow-request": true}
	for _, g := range flagGroups(new(settings)) {
		g.Flags.VisitAll(func(f *pflag.Flag) {
			var b bytes.Buffer
			cli.PrintFlag(&b, f)
			m := shown.FindStringSubmatch(strings.Join(strings.Fields(b.String()), " "))
			force := f.Value.String()
			switch {
			case byHand[f.Name]:
				if m == nil || f.DefValue != "" && f.DefValue != "0s" {
					t.Errorf("--%s: %q, in force is %q", f.Name, b.String(), force)
				}
			case m == nil && force != "" && force != "false":
				t.Errorf("--%s: no default, in force is %q", f.Name, force)
			case m != nil:
				if err := f.Value.Set(m[1]); err != nil || f.Value.String() != force {
					t.Errorf("--%s: default %q, in force is %q (%v)", f.Name, m[1], force, err)
				}
			}
		})
	}
}
