package peer

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// One line when it begins, one when it lasts, one when it is over, however
// often it was tried.
func TestReachSaysEachThingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := reach{log: slog.New(slog.NewTextHandler(&out, nil))}
		refused := errors.New("connection refused")
		r.note(2, nil)
		for range 200 {
			r.note(2, refused)
			time.Sleep(100 * time.Millisecond)
		}
		r.note(2, nil)
		r.note(2, nil)
		r.note(2, refused)
		r.note(2, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{`level=INFO msg="a server is not reached" peer=2 err="connection refused"`,
			`level=WARN msg="a server is still not reached" peer=2 for=10s`,
			`level=INFO msg="a server is reached again" peer=2 after=20s`, `level=INFO msg="a server is not reached"`,
			`level=INFO msg="a server is reached again"`}
		if len(lines) != len(want) {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, w := range want {
			expect.Has(t, lines[i], w, "line %d", i+1)
		}
	})
}
