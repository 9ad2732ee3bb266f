package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// soon is how long the end of something may take that takes an instant, on a
// machine that has other things to do.
const soon = 10 * time.Second

func awaitEnd(t *testing.T, what string, pids ...int) {
	t.Helper()
	begun := time.Now()
	for _, pid := range pids {
		for processAlive(pid) {
			must.That(t, time.Since(begun) <= soon, "%s: process %d is alive after %v", what, pid, soon)
			time.Sleep(5 * time.Millisecond)
		}
	}
	if d := time.Since(begun); d > time.Second {
		t.Logf("%s: took %v", what, d)
	}
}

// obedient is a COMMAND with a child, which both do what TERM says.
const obedient = `sleep 1000 & echo $$ $! >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; wait`

func TestKilledZlockLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		command string
		options []string
	}{
		"obedient": {obedient, nil},
		"stubborn": {stubborn, []string{"-k", "0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, tc.command, "/l", tc.options...)
			guard := guardOf(t, r.cmd.Process.Pid)
			r.cmd.Process.Kill()
			r.cmd.Wait()
			awaitEnd(t, "COMMAND's group", r.pids...)
			awaitEnd(t, "the guard", guard)
		})
	}
}

// Whoever kills all that is called zlock must not kill the guard with it: a COMMAND
// that ignores the kernel's TERM would run on beside the next holder.
func TestKillingAllZlocksLeavesNoCommand(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap "" TERM HUP; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; while :; do sleep .1; done`, "/l", "-k", "0.5")
	guard := guardOf(t, r.cmd.Process.Pid)
	for _, pid := range append(descendants(r.cmd.Process.Pid), r.pids...) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && strings.HasPrefix(string(name), "zlock") {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	r.cmd.Wait()
	awaitEnd(t, "COMMAND", r.pids...)
	awaitEnd(t, "the guard", guard)
}

// With the guard killed in the same instant only the kernel is left, which
// tells COMMAND itself.
func TestKilledZlockAndGuardLeaveNoCommand(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap "" TERM HUP INT; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; exec sleep 1000`, "/l")
	guard := guardOf(t, r.cmd.Process.Pid)
	syscall.Kill(guard, syscall.SIGSTOP) // so that it cannot be quicker
	syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL)
	syscall.Kill(guard, syscall.SIGKILL)
	r.cmd.Wait()
	awaitEnd(t, "COMMAND", r.pids...)
	awaitEnd(t, "the guard", guard)
}

// ticks is the processor time of a process, in hundredths of a second.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// A guard whose zlock is dead, or stopped, waits without using a core.
func TestGuardDoesNotSpin(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for 12 s: make test-all")
	}
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"dead": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kill := "3"
			if sig == syscall.SIGSTOP {
				kill = "0.1"
			}
			r := startRun(t, "/l", "--session-timeout", "10", "-k", kill)
			guard := guardOf(t, r.cmd.Process.Pid)
			syscall.Kill(r.cmd.Process.Pid, sig)
			if sig == syscall.SIGSTOP {
				r.awaitGone(t, 20*time.Second) // the guard goes on: zlock may, too
			}
			before := ticks(t, guard)
			time.Sleep(2 * time.Second)
			if used := ticks(t, guard) - before; used > 20 {
				t.Errorf("%d hundredths of a second in two", used)
			}
		})
	}
}

// A command that waits for news ends with whoever reads them.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"leader", "--watch", "/w"}, {"ls", "--watch", "/"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			must.OK(t, err)
			cmd := exec.Command(filepath.Join(built.dir, "zlock"), args...)
			cmd.Env = scriptEnv(t)
			cmd.Stdout = w
			must.OK(t, cmd.Start())
			w.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			time.Sleep(300 * time.Millisecond) // mostly it is connected then; it must not matter
			r.Close()
			select {
			case err := <-ended:
				if code := exitCode(err); code != exitOK && code != signalCode(syscall.SIGPIPE) {
					t.Errorf("exit code %d", code)
				}
			case <-time.After(2 * soon):
				cmd.Process.Kill()
				t.Error("it waits on")
			}
		})
	}
}

// TestKilledTestRunLeavesNothing is about these tests: whatever ends them, no
// zlock of theirs lives on. It runs itself and kills that.
func TestKilledTestRunLeavesNothing(t *testing.T) {
	if file := os.Getenv("ZLOCK_TEST_VICTIM"); file != "" {
		script := `(zlock leader --watch /v >/dev/null &); (zlock run /v -- sh -c 'sleep 1000 & wait' &); exec zlock run /w -- sh -c 'echo up; sleep 1000'`
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = scriptEnv(t)
		out := must.Get(cmd.StdoutPipe())(t)
		must.OK(t, cmd.Start())
		bufio.NewReader(out).ReadString('\n')
		os.WriteFile(file, []byte(os.Getenv(leashed)+"\n"), 0o600)
		select {}
	}
	if testing.Short() {
		t.Skip("runs this package's tests within itself: make test-all")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mark")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "ZLOCK_TEST_VICTIM="+file)
	must.OK(t, cmd.Start())
	var mark string
	for end := time.Now().Add(time.Minute); mark == ""; time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile(file)
		mark = strings.TrimSpace(string(b))
		if time.Now().After(end) {
			cmd.Process.Kill()
			t.Fatal("the other run did not begin")
		}
	}
	if len(marked(mark)) < 5 {
		t.Errorf("the other run started only %q", marked(mark))
	}
	cmd.Process.Kill()
	cmd.Wait()
	for end := time.Now().Add(2 * soon); len(marked(mark)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("these outlive it: %q", marked(mark))
		}
	}
}
