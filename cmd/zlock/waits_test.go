package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
)

// For each kind of lock, a zlock that waits for the lock, or does not get it, names the holder once.
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
			expect.Equal(t, exitCode(cmd.Run()), call.ExitNotAcquired, "exit code")
			expect.That(t, regexp.MustCompile(tc.want).MatchString(errs.String()), "it says %q, want %s", errs.String(),
				tc.want)
		})
	}
}

// A program inherits ZLOCK_HOLDS with a hold of /old that is over. A zlock below the program takes /old
// again. A zlock below that one must find the new hold.
func TestInheritedHoldAfterAnOldOne(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `ZLOCK_HOLDS="$(zlock run /old -- printenv ZLOCK_HOLDS)"; export ZLOCK_HOLDS
		zlock run /old -- zlock run --inherit -w 5 /old -- echo inherited`)
	cmd.Env = scriptEnv(t)
	out, err := cmd.CombinedOutput()
	expect.Equal(t, exitCode(err), 0, "exit code")
	expect.Equal(t, string(out), "inherited\n", "output")
}
