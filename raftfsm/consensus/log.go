package consensus

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// hcLogger returns a logger for the raft library that writes to the server's log. It writes nearly all lines
// at debug level, because the server itself logs each event that matters to an operator. After `closed` is
// set, no line from raft is a warning, because raft is being stopped. A line below the level of the server's
// log is not written at all.
func hcLogger(log *slog.Logger, closed *atomic.Bool) hclog.Logger {
	lines := lineLogger{log, closed}
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: lines, DisableTime: true,
		Exclude: func(_ hclog.Level, msg string, _ ...any) bool {
			return !log.Enabled(context.Background(), lines.level(msg))
		}})
}

// raftWarns lists the beginnings of raft's lines that stay warnings: the server does not log these events
// itself, and they are not caused by another server that is down.
var raftWarns = []string{
	"failed to take snapshot", "failed to get last log index", "failed to remove old logs",
	"failed to compact logs",
	"got unexpected command", "expected heartbeat", "pre-vote is disabled",
	"failed to receive whole snapshot", "failed to finalize snapshot", "failed to restore snapshot",
}

type lineLogger struct {
	log    *slog.Logger
	closed *atomic.Bool
}

// Write takes one line, which looks like "[WARN]  raft: what happened: key=value".
func (l lineLogger) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	if _, after, ok := strings.Cut(line, "] "); ok {
		line = strings.TrimSpace(after)
	}
	level := slog.LevelDebug
	if msg, ok := strings.CutPrefix(line, "raft: "); ok {
		level = l.level(msg)
	}
	l.log.Log(context.Background(), level, line)
	return len(b), nil
}

// level() returns the level at which the server's log gets a message from raft.
func (l lineLogger) level(msg string) slog.Level {
	warns := func(begin string) bool { return strings.HasPrefix(msg, begin) }
	if slices.ContainsFunc(raftWarns, warns) && !l.closed.Load() {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
