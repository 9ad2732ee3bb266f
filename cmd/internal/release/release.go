// Package release reports the release of the programs.
//
// The file RELEASES names every release with the commit that it was built from, newest first. The build reads
// it, so a build from sources without git has the right release too.
package release

import (
	_ "embed"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// The linker can set these two, by the option -X github.com/zlockd/zlockd/cmd/internal/release.set=0.1.0 and
// the option -X github.com/zlockd/zlockd/cmd/internal/release.built=2026-11-21T08:49:00Z
var (
	set   = ""
	built = ""
)

//go:embed RELEASES
var list string

// Version returns the version that the linker set. Without that, it returns the module's version if
// go install PATH@VERSION installed the program. Otherwise it returns the newest release with "-dev".
func Version() string {
	v := set
	if v == "" {
		v = moduleVersion()
	}
	if v == "" {
		v = regexp.MustCompile(`(?m)^\d\S*`).FindString(list) + "-dev"
	}
	// Replace other characters: some clients can parse a version only of letters, digits, dots and dashes.
	return regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(strings.TrimPrefix(v, "v"), ".")
}

// moduleVersion returns the module's version if go install PATH@VERSION installed the program. A build in a
// checkout has a pseudo-version, which is not a release.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(info.Main.Version) {
		return ""
	}
	return info.Main.Version
}

// Built returns when the program was built. If the linker did not set that time, it returns the time of the
// commit, or else the time of the executable's file.
func Built() time.Time {
	if t, err := time.Parse(time.RFC3339, built); err == nil {
		return t
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
					return t
				}
			}
		}
	}
	if file, err := os.Executable(); err == nil {
		if info, err := os.Stat(file); err == nil {
			return info.ModTime()
		}
	}
	return time.Time{}
}
