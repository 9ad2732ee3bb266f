package clients

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// rate spreads events evenly over each second.
type rate struct {
	perSecond int // 0: no limit

	mu   sync.Mutex
	next time.Duration // when the next event may happen
}

// wait waits for its turn. It reports false when that would take longer than a
// handshake may, or the server stops.
func (r *rate) wait(c *conn, now func() time.Duration) bool {
	if r.perSecond <= 0 {
		return true
	}
	r.mu.Lock()
	at := now()
	turn := max(r.next, at)
	if turn-at > c.srv.o.HandshakeTimeout {
		r.mu.Unlock()
		return false
	}
	r.next = turn + time.Second/time.Duration(r.perSecond)
	r.mu.Unlock()
	if turn == at {
		return true
	}
	c.srv.metrics.Throttled.Add(1)
	select {
	case <-time.After(turn - at):
		return true
	case <-c.srv.ctx.Done():
		return false
	}
}

// linesPerSecond bounds the log lines with one message that clients can cause.
const linesPerSecond = 10

// inputLog logs what clients cause. A message that comes too often is
// dropped and counted; values are cut short.
type inputLog struct {
	log     *slog.Logger
	now     func() time.Duration
	dropped atomic.Int64

	mu    sync.Mutex
	lines map[string]*lineCount // by message, which is always a constant
	from  map[lineOf]*repeated
}

// lineOf is a line about one address: if a program tries again and again, the log has a line now
// and then.
type lineOf struct{ addr, msg, reason string }

type repeated struct {
	next time.Duration // when the next line may be written
	more int           // that were left out since, and are counted in the next one
}

const (
	linesApart = 10 * time.Second // of one kind and address
	keptLines  = 1000             // kinds and addresses that are remembered
)

// of logs what one address causes.
func (l *inputLog) of(addr string, level slog.Level, msg string, args ...any) {
	what := lineOf{addr: addr, msg: msg}
	if len(args) > 1 && args[0] == "reason" {
		what.reason, _ = args[1].(string)
	}
	l.mu.Lock()
	now := l.now()
	r := l.from[what]
	if r == nil {
		if len(l.from) >= keptLines {
			clear(l.from)
		}
		r = new(repeated)
		l.from[what] = r
	}
	if now < r.next {
		r.more++
		l.mu.Unlock()
		return
	}
	more := r.more
	*r = repeated{next: now + linesApart}
	l.mu.Unlock()
	args = append([]any{"addr", addr}, args...)
	if more > 0 {
		args = append(args, "more", more)
	}
	l.line(level, msg, args)
}

type lineCount struct {
	second  time.Duration
	written int
}

func (l *inputLog) init(log *slog.Logger, now func() time.Duration) {
	l.log, l.now, l.lines, l.from = log, now, make(map[string]*lineCount), make(map[lineOf]*repeated)
}

func (l *inputLog) debug(msg string, args ...any) { l.line(slog.LevelDebug, msg, args) }
func (l *inputLog) info(msg string, args ...any)  { l.line(slog.LevelInfo, msg, args) }
func (l *inputLog) warn(msg string, args ...any)  { l.line(slog.LevelWarn, msg, args) }
func (l *inputLog) error(msg string, args ...any) { l.line(slog.LevelError, msg, args) }

func (l *inputLog) line(level slog.Level, msg string, args []any) {
	if !l.admit(msg) {
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

func (l *inputLog) admit(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.lines[msg]
	if k == nil {
		k = new(lineCount)
		l.lines[msg] = k
	}
	if second := l.now().Truncate(time.Second); second != k.second {
		*k = lineCount{second: second}
	}
	k.written++
	return k.written <= linesPerSecond
}

// maxLogged bounds the length of one value in the log. The server passes its own longer values as
// slog.Attr.
const maxLogged = 256

func cut(v string) string {
	if len(v) <= maxLogged {
		return v
	}
	return v[:maxLogged] + "…"
}
