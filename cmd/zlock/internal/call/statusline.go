package call

import (
	"fmt"
	"io"
	"os"
	"time"
)

// StatusLine shows progress. On a terminal it overwrites one line. Elsewhere it writes lines: one at each new
// kind of message, and for messages of the same kind at most one every statusEvery.
type StatusLine struct {
	w        io.Writer
	terminal bool
	open     bool // a line is shown, and the cursor is still at its end
	last     string
	told     time.Time
}

const statusEvery = 5 * time.Second

// NewStatusLine returns a line on standard error.
func NewStatusLine(a *App) *StatusLine {
	f, ok := a.Stderr.(*os.File)
	return &StatusLine{w: a.Stderr, terminal: ok && IsTerminal(f)}
}

// Show shows the current state. Lines with the same format have the same kind.
func (s *StatusLine) Show(format string, args ...any) { s.Tell(format, fmt.Sprintf(format, args...)) }

// Tell is like Show, but the caller names the kind of the line.
func (s *StatusLine) Tell(kind, text string) {
	text = Clean("zlock: " + text)
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

// News shows a text. It shows nothing if the text is the same as the last one.
func (s *StatusLine) News(text string) {
	if text != s.last {
		s.Tell(text, text)
	}
}

// End keeps the line on the screen and moves the cursor below it.
func (s *StatusLine) End() {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
}

// Clear removes the line on a terminal.
func (s *StatusLine) Clear() {
	if s.open {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.open = false
	}
}
