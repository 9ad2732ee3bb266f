package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A zlock that waits, or is refused, says once who holds the lock, whatever kind of lock it is.
func TestWaitersSayWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	const held = `^zlock: /l is held by \S+ pid \d+ since [\d:]+ \(why\)`
	const place = held + `; place 2 of 2\n$`
	for _, tc := range []struct{ name, holder, waiter, want string }{
		{"refused", "run --reason why", "run -n", place},
		{"in vain", "run --reason why", "run -w 1.5", place},
		{"in vain at once", "run --reason why", "run -w .2", place},
		{"reader", "run --rw --reason why", "run -s -w 1.5", place},
		{"refused writer", "run -s --reason why", "run -n", place},
		{"kazoo", "run --layout kazoo --reason why", "run --layout kazoo -w 1.5", place},
		{"policy", "run --policy fair --reason why", "run --policy fair -w 1.5", place},
		{"refused by a policy", "run --policy fair --reason why", "run --policy fair -s -n", place},
		{"permits", "run --semaphore 1 --reason why", "run --semaphore 1 -w 1.5", held + `\n$`},
		{"refused permits", "run --semaphore 1 --reason why", "run --semaphore 1 -n", held + `\n$`},
		{"leader", "elect --value me", "elect -w 1.5", `^zlock: /l is held by \S+ pid \d+ since [\d:]+; place 2 of 2\n$`},
		{"hold", "run --reason why", "hold -w 1.5", place},
		{"quiet", "run --reason why", "run -q -w 1.5", `^$`},
		{"quietly refused", "run --reason why", "run -q -n", `^$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			waiter := "zlock " + tc.waiter + " /l"
			if !strings.HasPrefix(tc.waiter, "hold") {
				waiter += " -- true"
			}
			args := append(strings.Fields(tc.holder), "/l", "--", "env", "-u", "ZLOCK_HOLDS", "sh", "-c", waiter)
			cmd := exec.Command(filepath.Join(built.dir, "zlock"), args...)
			cmd.Env = scriptEnv(t)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			expect.Equal(t, exitCode(cmd.Run()), exitNotAcquired, "exit code")
			expect.That(t, regexp.MustCompile(tc.want).MatchString(errs.String()), "it says %q, want %s", errs.String(),
				tc.want)
		})
	}
}

// A line is said again when the holder or the place changes, and far from the turn only once.
func TestNewsOfAWait(t *testing.T) {
	first := client.Event{Path: "/l", Holder: "/l/a", Place: 3, Of: 3}
	far := client.Event{Path: "/l", Holder: "/l/a", Place: 300, Of: 400}
	for _, tc := range []struct {
		name     string
		told, ev client.Event
		want     bool
	}{
		{"nothing is known", client.Event{}, client.Event{}, false},
		{"the first", client.Event{}, first, true},
		{"the same", first, first, false},
		{"another holder", first, client.Event{Path: "/l", Holder: "/l/b", Place: 3, Of: 3}, true},
		{"another place", first, client.Event{Path: "/l", Holder: "/l/a", Place: 2, Of: 3}, true},
		{"another lock", first, client.Event{Path: "/m", Holder: "/m/a", Place: 3, Of: 3}, true},
		{"far away", client.Event{}, far, true},
		{"still far away", far, client.Event{Path: "/l", Holder: "/l/b", Place: 299, Of: 400}, false},
		{"near", far, client.Event{Path: "/l", Holder: "/l/b", Place: 20, Of: 400}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expect.Equal(t, (&waitTeller{told: tc.told}).news(tc.ev), tc.want, "whether it is said")
		})
	}
}

// On a terminal one line is rewritten, and taken away before COMMAND writes.
func TestWaitLineOfATerminal(t *testing.T) {
	var text strings.Builder
	line := &statusLine{w: &text, terminal: true}
	line.show("held %d", 1)
	line.show("held %d", 2)
	line.clear()
	line.clear()
	must.Equal(t, text.String(), "\r\x1b[Kzlock: held 1\r\x1b[Kzlock: held 2\r\x1b[K")
}
