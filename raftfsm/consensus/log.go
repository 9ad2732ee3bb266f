package consensus

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// hcLogger returns a logger for the raft library that writes to ours, nearly all at debug level: the server
// itself logs each event that matters to an operator once. After closed is set, no line from raft is a
// warning, because raft is being stopped. A line that the server's log leaves out is not written at all.
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

// level is where a message of raft's belongs in the server's log.
func (l lineLogger) level(msg string) slog.Level {
	warns := func(begin string) bool { return strings.HasPrefix(msg, begin) }
	if slices.ContainsFunc(raftWarns, warns) && !l.closed.Load() {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
