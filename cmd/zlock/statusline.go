package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// statusLine shows progress: on a terminal in one line that it overwrites; elsewhere in a new
// line when the kind of message changes, and now and then.
type statusLine struct {
	w        io.Writer
	terminal bool
	open     bool // the cursor stands after the line
	last     string
	told     time.Time
}

const statusEvery = 5 * time.Second

func newStatusLine(a *app) *statusLine {
	f, ok := a.stderr.(*os.File)
	return &statusLine{w: a.stderr, terminal: ok && isTerminal(f)}
}

// show shows the current state. Lines with the same format have the same kind.
func (s *statusLine) show(format string, args ...any) { s.tell(format, fmt.Sprintf(format, args...)) }

// tell is show for a line with a named kind.
func (s *statusLine) tell(kind, text string) {
	text = clean("zlock: " + text)
	switch {
	case s.terminal:
		fmt.Fprintf(s.w, "\r\x1b[K%s", text)
		s.open = true
	case kind != s.last || time.Since(s.told) >= statusEvery:
		fmt.Fprintln(s.w, text)
		s.told = time.Now()
	}
	s.last = kind
}

// news is tell for a text that is said once.
func (s *statusLine) news(text string) {
	if text != s.last {
		s.tell(text, text)
	}
}

// end leaves the line as it is.
func (s *statusLine) end() {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
}

// clear takes the line away, where it is one that is overwritten.
func (s *statusLine) clear() {
	if s.open {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.open = false
	}
}
