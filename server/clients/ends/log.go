package ends

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	linesPerSecond = 10               // how many lines with the same message may be logged in a second
	linesApart     = 10 * time.Second // shortest time between lines of one message, address and reason
	keptLines      = 1000             // how many combinations of message, address and reason Log remembers
)

// Log logs events that clients cause. It drops and counts lines whose message comes too often, and lines
// about an address that tries again and again. It shortens long values.
type Log struct {
	log     *slog.Logger
	now     func() time.Duration
	dropped atomic.Int64

	mu    sync.Mutex
	kinds map[lineKind]*lineCount
}

// lineKind identifies the lines that are counted together; msg is always a constant.
type lineKind struct{ msg, addr, reason string }

type lineCount struct {
	end     time.Duration // when the period ends in which `written` counts the lines
	written int
	more    int // number of dropped lines since the last logged line
}

// Init prepares the log; `now` is the server's clock.
func (l *Log) Init(log *slog.Logger, now func() time.Duration) {
	l.log, l.now, l.kinds = log, now, make(map[lineKind]*lineCount)
}

// Dropped returns the number of dropped lines.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// Of adds a line to the log about an event that one address causes.
func (l *Log) Of(addr string, level slog.Level, msg string, args ...any) {
	kind := lineKind{msg: msg, addr: addr}
	if len(args) > 1 && args[0] == "reason" {
		kind.reason, _ = args[1].(string)
	}
	more, ok := l.admit(kind, 1, linesApart)
	if !ok {
		return
	}
	args = append([]any{"addr", addr}, args...)
	if more > 0 {
		args = append(args, "more", more)
	}
	l.line(level, msg, args)
}

func (l *Log) Debug(msg string, args ...any) { l.line(slog.LevelDebug, msg, args) }
func (l *Log) Info(msg string, args ...any)  { l.line(slog.LevelInfo, msg, args) }
func (l *Log) Warn(msg string, args ...any)  { l.line(slog.LevelWarn, msg, args) }
func (l *Log) Error(msg string, args ...any) { l.line(slog.LevelError, msg, args) }

func (l *Log) line(level slog.Level, msg string, args []any) {
	if _, ok := l.admit(lineKind{msg: msg}, linesPerSecond, time.Second); !ok {
		l.dropped.Add(1)
		return
	}
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = cut(v)
		case error:
			args[i] = cut(v.Error())
		}
	}
	l.log.Log(context.Background(), level, msg, args...)
}

// admit reports whether another line of this kind may be logged now, and how many lines were dropped since
// the last logged one. It allows at most `most` lines in each period of the length `within`.
func (l *Log) admit(kind lineKind, most int, within time.Duration) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		if len(l.kinds) >= keptLines {
			maps.DeleteFunc(l.kinds, func(k lineKind, _ *lineCount) bool { return k.addr != "" })
		}
		k = new(lineCount)
		l.kinds[kind] = k
	}
	if now := l.now(); now >= k.end {
		k.end, k.written = now+within, 0
	}
	if k.written >= most {
		k.more++
		return 0, false
	}
	k.written++
	more, k.more = k.more, 0
	return more, true
}

// maxLogged bounds the length of one value in the log. It does not apply to values that the server passes as
// slog.Attr.
const maxLogged = 256

func cut(v string) string {
	if len(v) <= maxLogged {
		return v
	}
	return v[:maxLogged] + "…"
}
