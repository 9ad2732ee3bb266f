package view

import (
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/view/answer"
)

// logPaths is how many paths of locks one line names.
const logPaths = 5

// logExpired writes the one log line of a session that fell silent: on the server that decided
// its end, which is the leader.
func (v *View) logExpired(e *observe.EndedSession, fates []answer.Fate) {
	if e.Cause != state.EndExpired || e.Time.Before(v.began) { // from the log that the start has read
		return
	}
	if mode := v.source.Status(0).Mode; mode != admin.Leader && mode != admin.Standalone {
		return
	}
	args := []any{"session", admin.Hex(e.Session), "zxid", admin.Hex(e.Zxid), "nodes", e.PathCount, "addr",
		e.Addr, "on", e.Server, "timeout", e.Timeout}
	if e.Silent > 0 { // its client was connected here
		args = append(args, "silent", e.Silent.Round(time.Millisecond))
	}
	if e.Lost != "" {
		args = append(args, "connection", e.Lost, "before", e.LostFor.Round(time.Millisecond))
	}
	var held, waited, makers []string
	for i := range fates {
		if m := fates[i].Maker; m != "unknown" && !slices.Contains(makers, m) {
			makers = append(makers, m)
		}
		if fates[i].Held {
			held = appendPath(held, fates[i].Path)
		} else {
			waited = appendPath(waited, fates[i].Path)
		}
	}
	if len(makers) > 0 {
		args = append(args, "library", strings.Join(makers, ", "))
	}
	if len(held) > 0 {
		args = append(args, "held", held)
	}
	if len(waited) > 0 {
		args = append(args, "waited", waited)
	}
	v.o.Log.Info("session expired: nothing was heard of its client", args...)
}

func appendPath(list []string, path string) []string {
	if len(list) < logPaths {
		return append(list, path)
	}
	return list
}
