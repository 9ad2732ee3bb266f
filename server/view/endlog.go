package view

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients"
)

// logPaths is how many paths of locks one line names.
const logPaths = 5

// logExpired writes the one line that a session leaves behind when it fell
// silent: on the server that decided it, which is the leader.
func (v *View) logExpired(e *clients.EndedSession, fates []fate) {
	if e.Cause != state.EndExpired {
		return
	}
	if mode := v.source.Status(0).Mode; mode != admin.Leader && mode != admin.Standalone {
		return
	}
	args := []any{"session", sessionID(e.Session), "zxid", sessionID(e.Zxid), "nodes", e.PathCount}
	if e.Addr != "" { // its client was connected here
		args = append(args, "addr", e.Addr, "timeout", e.Timeout, "silent", e.Silent.Round(time.Millisecond))
	}
	if e.Lost != "" {
		args = append(args, "connection", e.Lost, "before", e.LostFor.Round(time.Millisecond))
	}
	var held, waited []string
	for i := range fates {
		if fates[i].Held {
			held = appendPath(held, fates[i].Path)
		} else {
			waited = appendPath(waited, fates[i].Path)
		}
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
