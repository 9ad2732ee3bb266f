package call

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// On a terminal zlock rewrites one line, and removes it before COMMAND writes.
func TestWaitLineOfATerminal(t *testing.T) {
	var text strings.Builder
	line := &StatusLine{w: &text, terminal: true}
	line.Show("held %d", 1)
	line.Show("held %d", 2)
	line.Clear()
	line.Clear()
	must.Equal(t, text.String(), "\r\x1b[Kzlock: held 1\r\x1b[Kzlock: held 2\r\x1b[K")
}

func TestForeignTextIsMadeVisible(t *testing.T) {
	got := Clean("a\x1b[2Jb\tc\nd\u0085e\xff")
	expect.That(t, !strings.ContainsAny(got, "\x1b\t\n\u0085"), "cleaned to %q", got)
	expect.Equal(t, Clean("Größe → ok"), "Größe → ok", "harmless text became")
}
