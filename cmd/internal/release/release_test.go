package release

import (
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Release is one line of RELEASES.
type Release struct {
	Version string
	Commit  string // the commit of its sources; empty until the release is recorded
}

// List returns all releases, newest first.
func List() []Release {
	var all []Release
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		r := Release{Version: fields[0]}
		if len(fields) > 1 {
			r.Commit = fields[1]
		}
		all = append(all, r)
	}
	return all
}

// Each line of RELEASES names a version and its commit, from which the upgrade test builds the release. Only
// the newest release may lack its commit.
func TestReleasesNameTheirCommits(t *testing.T) {
	all := List()
	must.That(t, len(all) != 0, "RELEASES names no release")
	seen := map[string]bool{}
	for i, r := range all {
		expect.That(t, regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(r.Version),
			"version %q: want MAJOR.MINOR.PATCH", r.Version)
		expect.That(t, !seen[r.Version], "version %s stands in RELEASES twice", r.Version)
		seen[r.Version] = true
		if i > 0 && r.Commit == "" || r.Commit != "" && !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(
			r.Commit) {
			t.Errorf("release %s: commit %q", r.Version, r.Commit)
		}
	}
}

func TestVersionSuitsParsersOfClients(t *testing.T) {
	defer func(was string) { set = was }(set)
	for given, want := range map[string]string{
		"":                    List()[0].Version + "-dev",
		"v1.2.3":              "1.2.3",
		"0.1.0-5-gab12+dirty": "0.1.0-5-gab12.dirty",
	} {
		set = given
		got := Version()
		expect.Equal(t, got, want, "%q becomes %q", given, got)
	}
}
