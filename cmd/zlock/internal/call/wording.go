package call

import (
	"fmt"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// HostOf returns the name of a contender's host, or its session if the contender does not tell its host.
func HostOf(e recipe.Entry) string {
	if e.Owner != nil && e.Owner.Host != "" {
		return e.Owner.Host
	}
	return e.Session.String()
}

// Clock formats a time for people. It leaves out the date if the time is less than a day ago.
func Clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if time.Since(t) < 18*time.Hour {
		return t.Local().Format("15:04:05")
	}
	return t.Local().Format("2006-01-02 15:04")
}

// Stamp formats a time for programs.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// WaitText describes what a contender waits for: the holder of the lock and the contender ahead, if they are
// known. If `place` is not 0, the text also has the contender's place and the length of the queue (`of`).
func WaitText(path, holder, ahead string, place, of int) string {
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

// SinceWhy formats since when a contender holds or waits, and its reason.
func SinceWhy(since int64, reason string) string {
	text := " since " + Clock(time.UnixMilli(since))
	if strings.TrimSpace(reason) != "" {
		text += " (" + reason + ")"
	}
	return text
}
