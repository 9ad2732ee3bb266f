package release

import (
	"regexp"
	"testing"
)

// The list is what the upgrade test builds old releases from, so every line must
// name a version, and only the newest may lack its commit.
func TestReleasesNameTheirCommits(t *testing.T) {
	all := List()
	if len(all) == 0 {
		t.Fatal("RELEASES names no release")
	}
	seen := map[string]bool{}
	for i, r := range all {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(r.Version) || seen[r.Version] {
			t.Errorf("version %q: want a new MAJOR.MINOR.PATCH", r.Version)
		}
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
		if got := Version(); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
