package ends

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestLogLinesCausedByInputAreBounded(t *testing.T) {
	var log must.Text
	now := time.Duration(0)
	var l Log
	l.Init(slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return now })
	for range 100 {
		l.Info("kind one", "value", strings.Repeat("v", 1000)+"\n")
	}
	l.Warn("kind two", "err", errors.New(strings.Repeat("e", 1000)))
	now = time.Second
	l.Info("kind one")
	text := log.String()
	expect.Equal(t, strings.Count(text, "\n"), linesPerSecond+2, "lines")
	expect.That(t, len(text) <= 600*(linesPerSecond+2), "%d bytes", len(text))
	expect.Equal(t, l.Dropped(), 100-linesPerSecond, "dropped")
}

// The log leaves out repeated lines. The next line of that kind says how many were left out.
func TestRepeatedLinesAreCounted(t *testing.T) {
	var log must.Text
	now := time.Duration(0)
	var l Log
	l.Init(slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return now })
	for range 5 {
		l.Of("10.0.0.1", slog.LevelInfo, "connection refused", "reason", "one")
		l.Of("10.0.0.1", slog.LevelInfo, "connection refused", "reason", "two")
		l.Of("10.0.0.2", slog.LevelInfo, "connection refused", "reason", "one")
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	now = linesApart
	l.Of("10.0.0.1", slog.LevelInfo, "connection refused", "reason", "one")
	expect.That(t, strings.HasSuffix(log.String(), "addr=10.0.0.1 reason=one more=4\n"),
		"%s", log.String())
	for i := range 3 * keptLines {
		l.Of(fmt.Sprint(i), slog.LevelInfo, "connection refused")
	}
	expect.That(t, len(l.kinds) <= keptLines, "%d kinds are remembered", len(l.kinds))
}

// The log limits the number of lines of a kind in a period, and the length of a value.
func TestValuesOfLogLinesAreCut(t *testing.T) {
	long := make([]byte, maxLogged+1)
	for i := range long {
		long[i] = 'x'
	}
	expect.Equal(t, cut(string(long[1:])), string(long[1:]))
	expect.Equal(t, cut(string(long)), string(long[1:])+"…")
	now := time.Duration(0)
	var l Log
	l.Init(nil, func() time.Duration { return now })
	kind := lineKind{msg: "kind"}
	for i, x := range []struct {
		at   time.Duration
		more int
		ok   bool
	}{
		{0, 0, true}, {0, 0, true}, {0, 0, false}, {time.Second - 1, 0, false}, {time.Second, 2, true},
		{time.Second, 0, true},
		{2*time.Second - 1, 0, false}, {5 * time.Second, 1, true},
	} {
		now = x.at
		more, ok := l.admit(kind, 2, time.Second)
		expect.Equal(t, more, x.more, "line %d at %v: more", i, x.at)
		expect.Equal(t, ok, x.ok, "line %d at %v", i, x.at)
	}
	for i := range keptLines - 1 { // with the kind above, these are as many as the log remembers
		must.Equal(t, len(l.kinds), 1+i)
		l.admit(lineKind{msg: "of", addr: string(rune('a' + i))}, 1, time.Second)
	}
	must.Equal(t, len(l.kinds), keptLines)
	l.admit(lineKind{msg: "one more"}, 1, time.Second)
	if expect.Equal(t, len(l.kinds), 2, "%d kinds: len(l.kinds)", len(l.kinds)) {
		expect.That(t, l.kinds[kind] != nil,
			"%d kinds: those of addresses are forgotten, others not: want l.kinds[kind] != nil",
			len(l.kinds))
	}
}
