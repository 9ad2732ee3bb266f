package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// hostOf returns the host of a contender, or else its session.
func hostOf(e recipe.Entry) string {
	if e.Owner != nil && e.Owner.Host != "" {
		return e.Owner.Host
	}
	return e.Session.String()
}

// clock formats a time for people, without the date if it is recent.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if time.Since(t) < 18*time.Hour {
		return t.Local().Format("15:04:05")
	}
	return t.Local().Format("2006-01-02 15:04")
}

// stamp formats a time for programs.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// waitText says whom a contender waits for, as far as that is known: who holds the lock, or who stands ahead;
// and its place, 0 if it has none.
func waitText(path, holder, ahead string, place, of int) string {
	text, between := "waiting for "+path, ": "
	if holder != "" {
		text, between = path+" is held by "+holder, "; "
	}
	if place > 0 {
		text += fmt.Sprintf("%splace %d of %d", between, place, of)
	}
	if ahead != "" {
		text += ", behind " + ahead
	}
	return text
}

// sinceWhy says since when a contender holds or waits, and why.
func sinceWhy(since int64, reason string) string {
	text := " since " + clock(time.UnixMilli(since))
	if strings.TrimSpace(reason) != "" {
		text += " (" + reason + ")"
	}
	return text
}
