package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// escaped is a COMMAND with a child in a session of its own that ignores TERM. Its
// numbers of processes would be those of the namespace, so it writes none.
// It is ready when there is a file named go.
const escaped = `setsid sh -c 'trap "" TERM INT HUP; : >"$1.go"; while :; do sleep .02; done' sh "$1" &
until [ -e "$1.go" ]; do sleep .02; done
`

// needsNamespaces skips where the system gives us no namespace of processes.
func needsNamespaces(t *testing.T) {
	t.Helper()
	if !canContain {
		t.Skip("only Linux has namespaces of processes")
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	contain(cmd.SysProcAttr)
	if err := cmd.Run(); err != nil {
		t.Skipf("no namespace of processes here: %v", err)
	}
}

func TestContainedCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	loop := func(then string) string {
		return `trap "` + then +
			`" USR1; : >"$1.pids"; while :; do sleep .02; done`
	}
	usr1 := func(r *running, _ int) { r.cmd.Process.Signal(syscall.SIGUSR1) }
	for name, tc := range map[string]struct {
		script string
		end    func(r *running, guard int)
		code   int
	}{
		"COMMAND ends": {loop("exit 7"), usr1, 7},
		"COMMAND dies": {loop("kill -ABRT $$"), usr1, 128 + int(syscall.SIGABRT)},
		"zlock is told to end": {`: >"$1.pids"; wait`, func(r *running, _ int) {
			r.cmd.Process.Signal(syscall.SIGTERM)
		}, 128 + int(syscall.SIGTERM)},
		"all are killed": {`trap "" TERM; : >"$1.pids"; wait`, func(r *running, guard int) {
			syscall.Kill(guard, syscall.SIGSTOP) // it must not be what helps
			r.cmd.Process.Kill()
			syscall.Kill(guard, syscall.SIGKILL)
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, escaped+tc.script, "/l", "--contain", "-k", "0.3")
			zlock := r.cmd.Process.Pid
			guard := guardOf(t, zlock)
			var all []int
			for _, keeper := range childrenOf(guard) {
				all = descendants(keeper)
			}
			must.That(t, len(all) >= 3, "keeper, COMMAND and its child are %v", all)
			tc.end(r, guard)
			if code := exitCode(r.cmd.Wait()); code != tc.code {
				t.Errorf("exit code %d, not %d", code, tc.code)
			}
			awaitEnd(t, "the namespace", all...)
		})
	}
}

// The first process of a namespace must not keep from COMMAND what is for it.
func TestContainedCommandGetsItsSignals(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	for _, foreground := range []string{"--foreground=false", "--foreground"} {
		t.Run(foreground, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, `trap 'exit 9' USR1; : >"$1.pids"; while :; do sleep .02; done`, "/l", "--contain",
				foreground)
			r.cmd.Process.Signal(syscall.SIGUSR1)
			expect.Equal(t, exitCode(r.cmd.Wait()), 9, "exit code")
		})
	}
	for want, command := range map[string]string{"127": "/nowhere/at/all", "126": "/etc/passwd"} {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--contain", "/l", "--", "sh", "-c", command)
		cmd.Env = append(scriptEnv(t), "PATH="+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
}
