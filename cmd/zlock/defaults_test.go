package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var shownDefault = regexp.MustCompile(`\((?:[A-Z_]+; )?default:? ([^)]*)\)`)

// byHand are defaults that are part of a flag's text, and what is in force.
var byHand = map[string]string{
	"servers":         "127.0.0.1:2181",
	"admin-addr":      "127.0.0.1:8181",
	"layout":          client.LayoutCurator.String(),
	"tls-ca":          "the system's",
	"tls-server-name": "each server's own",
	"on-revoke":       "TERM with --revocable, else none",
	"foreground":      "if standard input is a terminal",
}

// Every default in a help text is the value in force, and every value in force
// that is not nothing is shown.
func TestHelpShowsTheDefaultsInForce(t *testing.T) {
	for _, c := range new(app).program().Commands {
		if c.Hidden {
			continue
		}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Setup(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			one := pflag.NewFlagSet("", pflag.ContinueOnError)
			one.AddFlag(f)
			shown := ""
			if m := shownDefault.FindStringSubmatch(one.FlagUsages()); m != nil {
				shown = strings.Trim(m[1], `"`)
			}
			if want, ok := byHand[f.Name]; ok {
				expect.That(t, strings.HasSuffix(shown, want),
					"%s --%s: default %q, want %q", c.Name, f.Name, shown, want)
				return
			}
			if v, ok := f.Value.(duration); ok {
				d, err := parseDuration(shown)
				if shown == "" {
					d, err = 0, nil
				}
				if err != nil || d != *v.d {
					t.Errorf("%s --%s: default %q, in force is %v", c.Name, f.Name, shown, *v.d)
				}
				return
			}
			force := f.Value.String()
			if force == "false" || force == "0" || force == "[]" {
				force = ""
			}
			expect.Equal(t, shown, force, "%s --%s: default %q, in force", c.Name, f.Name, shown)
		})
	}
	if servers, _, err := new(connectFlags).address(func(string) string { return "" }); err != nil ||
		servers != byHand["servers"] {
		t.Errorf("servers %q, %v", servers, err)
	}
}

func TestDurationsAreShownAsTheyAreTyped(t *testing.T) {
	for _, s := range []string{"20s", "10s", "30s", "1m", "10m", "1h", "10h", "1m30s", "1h0m10s", "100ms",
		"1m10s", "20m", "1h30m"} {
		d := must.Get(parseDuration(s))(t)
		expect.Equal(t, (duration{&d}).String(), s, "is shown as")
	}
}
