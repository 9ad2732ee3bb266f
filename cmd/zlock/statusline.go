package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// statusLine tells how something goes on: on a terminal in one line that is
// written over, elsewhere in a line when there is something else to say and now
// and then.
type statusLine struct {
	w        io.Writer
	terminal bool
	open     bool // the cursor stands behind the line
	last     string
	told     time.Time
}

const statusEvery = 5 * time.Second

func newStatusLine(a *app) *statusLine {
	f, ok := a.stderr.(*os.File)
	return &statusLine{w: a.stderr, terminal: ok && isTerminal(f)}
}

// show tells how it stands. Lines with the same format are of the same kind.
func (s *statusLine) show(format string, args ...any) {
	text := clean(fmt.Sprintf("zlock: "+format, args...))
	switch {
	case s.terminal:
		fmt.Fprintf(s.w, "\r\x1b[K%s", text)
		s.open = true
	case format != s.last || time.Since(s.told) >= statusEvery:
		fmt.Fprintln(s.w, text)
		s.told = time.Now()
	}
	s.last = format
}

// end leaves the line as it stands.
func (s *statusLine) end() {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
}

// rate is how fast a count rises, over the last seconds.
type rate struct {
	at    time.Time
	count int64
	per   float64 // second
}

// of tells the rate and, as far as it can be told, the time that what is left
// takes.
func (r *rate) of(count, left int64, unit func(int64) string) string {
	now := time.Now()
	if r.at.IsZero() || count < r.count {
		*r = rate{at: now, count: count}
		return ""
	}
	if d := now.Sub(r.at); d >= time.Second {
		r.per = float64(count-r.count) / d.Seconds()
		r.at, r.count = now, count
	}
	if r.per < 1 {
		return ""
	}
	text := fmt.Sprintf(" (%s/s", unit(int64(r.per)))
	if left > 0 {
		text += ", " + (time.Duration(float64(left)/r.per) * time.Second).String() + " to go"
	}
	return text + ")"
}

// byteCount is a number of bytes for people.
func byteCount(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
