package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// strayBeat writes a script that ignores TERM and appends the time to a file until it is killed.
const strayBeat = `cat >"$1.sh" <<'END'
trap "" TERM INT HUP; date +%s%N >>"$1"; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"
while :; do date +%s%N >>"$1"; sleep .02; done
END
`

// `stays` is a COMMAND that runs until a file exists whose name is its argument plus .go.
const stays = `
until [ -e "$1.go" ]; do sleep .02; done`

// A process that has left COMMAND's group, or is the COMMAND of another zlock, ends before the lock is given
// back.
func TestStraysEndBeforeTheLockMoves(t *testing.T) {
	t.Parallel()
	ways := map[string]string{
		"timeout":                    `timeout 1000 sh "$1.sh" "$1"; true`,
		"job control":                `exec bash -c 'set -m; sh "$1.sh" "$1" & wait' sh "$1"`,
		"setsid twice":               `setsid sh -c 'setsid sh "$1.sh" "$1" &' sh "$1"` + stays,
		"zlock within zlock":         `zlock run /inner -- sh "$1.sh" "$1"`,
		"leaves zlock":               `zlock run /inner -- sh "$1.sh" "$1" &` + stays,
		"leaves timeout":             `timeout 1000 sh "$1.sh" "$1" &` + stays,
		"leaves a group of its own":  `setsid sh -c 'setsid sh "$1.sh" "$1" &' sh "$1" & wait` + stays,
		"leaves what left a subtree": `(setsid sh -c '(sh "$1.sh" "$1" &)' sh "$1" &)` + stays,
	}
	ends := map[string]func(t *testing.T, r *running){
		"lost": func(t *testing.T, r *running) {
			cmd := exec.Command(filepath.Join(built.dir, "zlock"), "revoke", "/l")
			cmd.Env = r.cmd.Env
			out, err := cmd.CombinedOutput()
			must.OK(t, err, "%s", out)
		},
		"zlock killed": func(_ *testing.T, r *running) { r.cmd.Process.Kill() },
		"guard killed": func(t *testing.T, r *running) { syscall.Kill(guardOf(t, r.cmd.Process.Pid), syscall.SIGKILL) },
		"COMMAND ends": func(t *testing.T, r *running) { must.OK(t, os.WriteFile(r.beats+".go", nil, 0o600)) },
	}
	for way, script := range ways {
		for end, do := range ends {
			if end == "COMMAND ends" && !strings.HasSuffix(script, stays) {
				continue
			}
			t.Run(way+"/"+end, func(t *testing.T) {
				t.Parallel()
				r := startCommand(t, strayBeat+script, "/l", "--revocable", "0.2", "-k", "0.6", "--session-timeout", "20")
				next := nextHolder(t, r.cmd.Env, "/l")
				do(t, r)
				r.cmd.Wait()
				granted, gone := <-next, r.gone()
				last := r.lastBeat(t)
				expect.That(t, gone, "a process of COMMAND runs beside the next holder")
				expect.That(t, granted.After(last), "the next holder began at %v, a process of COMMAND lived until %v",
					granted, last)
			})
		}
	}
}

// With --leave, a daemon of COMMAND continues after COMMAND. The rest of COMMAND's group ends.
func TestLeaveSparesDaemons(t *testing.T) {
	t.Parallel()
	for _, foreground := range []string{"--foreground=false", "--foreground"} {
		t.Run(foreground, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, strayBeat+`setsid sh "$1.sh" "$1" &`+stays, "/l", "--leave", foreground)
			must.OK(t, os.WriteFile(r.beats+".go", nil, 0o600))
			expect.OK(t, r.cmd.Wait())
			expect.That(t, !r.gone(), "the daemon has ended")
		})
	}
}

// An inner zlock gives its lock back before the outer zlock kills it.
func TestZlockWithinZlockGivesBackItsLock(t *testing.T) {
	t.Parallel()
	r := startCommand(t, strayBeat+`zlock run --session-timeout 40 /inner -- sh "$1.sh" "$1"`, "/l", "-k", "4",
		"--revocable", "1")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "revoke", "/l")
	cmd.Env = r.cmd.Env
	out, err := cmd.CombinedOutput()
	must.OK(t, err, "%s", out)
	r.cmd.Wait()
	cmd = exec.Command(filepath.Join(built.dir, "zlock"), "run", "-n", "/inner", "--", "true")
	cmd.Env = r.cmd.Env
	out, err = cmd.CombinedOutput()
	expect.OK(t, err, "the inner lock is held: %s", out)
}

// If a user ends the outer zlock, COMMAND has the time that it needs.
func TestZlockWithinZlockPassesOnTheUsersSignal(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `exec zlock run /inner -- sh -c 'trap "sleep 3; exit 7" TERM
echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; while :; do sleep .02; done' sh "$1"`, "/l", "-k", "0.5")
	r.cmd.Process.Signal(syscall.SIGTERM)
	expect.Equal(t, exitCode(r.cmd.Wait()), 7, "exit code of a COMMAND that takes three seconds to end")
}

// Within --contain, /proc shows the numbers of the outer namespace. zlock still finds the processes that
// leave the group.
func TestContainedZlockEndsStrays(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	file := filepath.Join(t.TempDir(), "pid")
	// If setsid leads a process group, it starts its command in another process and returns at once. So
	// COMMAND waits until the child writes the file.
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--contain", "-k", "1", "/l", "--", "sh", "-c",
		`zlock run -k .3 /m -- sh -c '
			setsid sh -c "(trap \"\" TERM; while :; do sleep .05; done) & echo \$! >\$F"
			until [ -s "$F" ]; do sleep .01; done
		'; kill -0 $(cat "$F")`)
	cmd.Env = append(scriptEnv(t), "F="+file)
	out, err := cmd.CombinedOutput()
	expect.That(t, exitCode(err) == 1, "what COMMAND left outlives the lock: %v\n%s", err, out)
	n, _ := strconv.Atoi(strings.TrimSpace(string(must.Get(os.ReadFile(file))(t))))
	expect.That(t, n > 0, "COMMAND did not start")
}
