package main

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// Set by the linker for releases: -X main.release=1.2.3 -X main.built=2026-11-21T08:49:00Z
var (
	release = ""
	built   = ""
)

// version names what was built: the release, or the module's version when
// installed with go install, or "dev".
func version() string {
	v := release
	if v == "" {
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
	}
	// Clients' parsers take letters, digits, dots and dashes.
	v = regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(strings.TrimPrefix(v, "v"), ".")
	if v == "" {
		return "dev"
	}
	return v
}

// buildTime is when this was built: as the linker was told, or the time of
// the commit, or at last that of the executable's file.
func buildTime() time.Time {
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
