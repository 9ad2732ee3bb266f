package consensus

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// hcLogger returns a logger for the raft library that writes to ours, nearly all at debug level: the server
// itself logs each event that matters to an operator once. After closed is set, no line from raft is a
// warning, because raft is being stopped.
func hcLogger(log *slog.Logger, closed *atomic.Bool) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: lineLogger{log, closed},
		DisableTime: true})
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
	for _, begin := range raftWarns {
		if strings.HasPrefix(line, "raft: "+begin) && !l.closed.Load() {
			level = slog.LevelWarn
		}
	}
	l.log.Log(context.Background(), level, line)
	return len(b), nil
}
