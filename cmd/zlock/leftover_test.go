package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// `soon` is a time limit for actions that take an instant, but longer on a busy machine.
const soon = 10 * time.Second

func awaitEnd(t *testing.T, what string, pids ...int) {
	t.Helper()
	begun := time.Now()
	for _, pid := range pids {
		for supervise.Alive(pid) {
			must.That(t, time.Since(begun) <= soon, "%s: process %d is alive after %v", what, pid, soon)
			time.Sleep(5 * time.Millisecond)
		}
	}
	if d := time.Since(begun); d > time.Second {
		t.Logf("%s: took %v", what, d)
	}
}

// `obedient` is a COMMAND with a child. TERM ends both.
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

// If a user kills all processes named zlock, the guard survives, because it has another name. It then ends a
// COMMAND that ignores TERM.
func TestKillingAllZlocksLeavesNoCommand(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap "" TERM HUP; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; while :; do sleep .1; done`, "/l", "-k", "0.5")
	guard := guardOf(t, r.cmd.Process.Pid)
	started := descendantsOf(r.cmd.Process.Pid)
	r.cmd.Process.Kill()
	for _, pid := range started {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if bytes.HasPrefix(name, []byte("zlock")) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	r.cmd.Wait()
	awaitEnd(t, "COMMAND", r.pids...)
	awaitEnd(t, "the guard", guard)
}

// If zlock and the guard are killed at the same instant, only the kernel can signal COMMAND.
func TestKilledZlockAndGuardLeaveNoCommand(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap "" TERM HUP INT; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; exec sleep 1000`, "/l")
	guard := guardOf(t, r.cmd.Process.Pid)
	syscall.Kill(guard, syscall.SIGSTOP) // so that the guard cannot act first
	syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL)
	syscall.Kill(guard, syscall.SIGKILL)
	r.cmd.Wait()
	awaitEnd(t, "COMMAND", r.pids...)
	awaitEnd(t, "the guard", guard)
}

// ticks() returns the processor time of a process, in hundredths of a second.
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
			timeout, kill := "40", "20" // the guard of a dead zlock waits 20 s before the KILL
			if sig == syscall.SIGSTOP {
				timeout, kill = "10", "0.1"
			}
			r := startRun(t, "/l", "--session-timeout", timeout, "-k", kill)
			guard := guardOf(t, r.cmd.Process.Pid)
			syscall.Kill(r.cmd.Process.Pid, sig)
			if sig == syscall.SIGSTOP {
				r.awaitGone(t, time.Minute) // the guard acts only at its deadline, so wait until COMMAND is gone
			}
			before := ticks(t, guard)
			time.Sleep(2 * time.Second)
			used := ticks(t, guard) - before
			expect.That(t, used <= 20, "%d hundredths of a second in two", used)
		})
	}
}

// A command that waits for news ends when the reader of its output ends.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"leader", "--watch", "/w"}, {"ls", "--watch", "/"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			r, w := must.Get2(os.Pipe())(t)
			cmd := exec.Command(filepath.Join(built.dir, "zlock"), args...)
			cmd.Env = scriptEnv(t)
			cmd.Stdout = w
			must.OK(t, cmd.Start())
			w.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			// By now the client is probably connected; if it is not, the test is still right.
			time.Sleep(300 * time.Millisecond)
			r.Close()
			select {
			case err := <-ended:
				if code := exitCode(err); code != call.ExitOK && code != supervise.SignalCode(syscall.SIGPIPE) {
					t.Errorf("exit code %d", code)
				}
			case <-time.After(2 * soon):
				cmd.Process.Kill()
				t.Error("it waits on")
			}
		})
	}
}

// No zlock outlives the test run that started it, however the run ends. The test starts such a run and kills
// it.
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
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=15m")
	cmd.Env = append(os.Environ(), "ZLOCK_TEST_VICTIM="+file)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	var mark string
	must.Await(t, "the other run has begun", 5*time.Minute, func() bool {
		b, _ := os.ReadFile(file)
		mark = strings.TrimSpace(string(b))
		return mark != ""
	})
	must.Await(t, "the other run has started all of its commands", 5*time.Minute,
		func() bool { return len(marked(mark)) >= 5 })
	cmd.Process.Kill()
	cmd.Wait()
	defer func() {
		if t.Failed() {
			t.Logf("these outlive it: %q", marked(mark))
		}
	}()
	must.Await(t, "all of them have ended", time.Minute, func() bool { return len(marked(mark)) == 0 })
}

// `escaped` is a COMMAND with a child in its own session, and the child ignores TERM. COMMAND writes no
// process ids: they are valid only in the namespace. The file with the suffix .go shows that the child runs.
const escaped = `setsid sh -c 'trap "" TERM INT HUP; : >"$1.go"; while :; do sleep .02; done' sh "$1" &
until [ -e "$1.go" ]; do sleep .02; done
`

// needsNamespaces skips the test if the system does not let this process make a PID namespace.
func needsNamespaces(t *testing.T) {
	t.Helper()
	if !supervise.CanContain {
		t.Skip("only Linux has PID namespaces")
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	supervise.Contain(cmd.SysProcAttr)
	if err := cmd.Run(); err != nil {
		t.Skipf("no PID namespace here: %v", err)
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
			syscall.Kill(guard, syscall.SIGSTOP) // the kernel must kill COMMAND without the guard's help
			r.cmd.Process.Kill()
			syscall.Kill(guard, syscall.SIGKILL)
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, escaped+tc.script, "/l", "--contain", "-k", "0.3")
			zlock := r.cmd.Process.Pid
			guard := guardOf(t, zlock)
			// The processes in the namespace: its first process, which is called keeper, COMMAND and its
			// child.
			all := descendantsOf(guard)
			must.That(t, len(all) >= 3, "keeper, COMMAND and its child are %v", all)
			tc.end(r, guard)
			if code := exitCode(r.cmd.Wait()); code != tc.code {
				t.Errorf("exit code %d, not %d", code, tc.code)
			}
			awaitEnd(t, "the namespace", all...)
		})
	}
}

// A zlock within the namespace of another zlock finds what COMMAND leaves, although /proc shows another
// number for COMMAND's group.
func TestContainedZlockEndsWhatItsCommandLeaves(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--contain", "-k", "1", "/l", "--", "sh", "-c",
		`zlock run -k .3 /m -- sh -c '(trap "" TERM; while :; do sleep .05; done) & echo $! >"$0"' "$0"; kill -0 $(cat "$0")`,
		filepath.Join(t.TempDir(), "pid"))
	cmd.Env = scriptEnv(t)
	out, err := cmd.CombinedOutput()
	expect.That(t, exitCode(err) == 1, "what COMMAND left outlives the lock: %v\n%s", err, out)
}

// zlock and its guard end COMMAND without waiting for a reader of their messages.
func TestCommandEndsWhileMessagesAreNotRead(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%v", stopped), func(t *testing.T) {
			t.Parallel()
			reader, full := must.Get2(os.Pipe())(t)
			defer reader.Close()
			must.OK(t, full.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
			_, err := full.Write(make([]byte, 1<<20))
			expect.Is(t, err, os.ErrDeadlineExceeded, "the pipe takes more")
			up := filepath.Join(t.TempDir(), "up")
			cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--max-hold", "5", "-k", ".5", "/l", "--", "sh",
				"-c", `exec 2>/dev/null; trap "" TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep .05; done`, up)
			cmd.Env, cmd.Stderr = scriptEnv(t), full
			must.OK(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			var text []byte
			must.Await(t, "COMMAND runs", time.Minute, func() bool { text, _ = os.ReadFile(up); return len(text) > 0 })
			if stopped {
				must.OK(t, cmd.Process.Signal(syscall.SIGSTOP))
			}
			awaitEnd(t, "COMMAND", must.Get(strconv.Atoi(strings.TrimSpace(string(text))))(t))
		})
	}
}

// The first process of a namespace passes signals on to COMMAND.
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
			r = startCommand(t, `trap 'exit 8' INT; : >"$1.pids"; while :; do sleep .02; done`, "/l", "--contain",
				foreground)
			syscall.Kill(guardOf(t, r.cmd.Process.Pid), syscall.SIGINT)
			expect.Equal(t, exitCode(r.cmd.Wait()), 8, "exit code after a signal to the guard")
		})
	}
	for want, command := range map[string]string{"127": "/nowhere/at/all", "126": "/etc/passwd"} {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--contain", "/l", "--", "sh", "-c", command)
		cmd.Env = append(scriptEnv(t), "PATH="+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		expect.That(t, strings.HasSuffix(err.Error(), want), "%s: %v: %s", command, err, out)
	}
}

// `leashed` is a variable in the environment of every process that the tests start, directly or indirectly.
// Guards, COMMANDs and background jobs leave their process groups and sessions, but keep this variable.
const leashed = "ZLOCK_TEST_RUN"

// leash() starts a process that waits for the end of this one, and then kills the processes that the tests
// have left.
func leash() (stop func(), err error) {
	// After the script has made its list, a process in the list may start another process before it is killed.
	// So the script makes the list again.
	const script = `cat >/dev/null
for n in 1 2 3 4 5 6 7 8 9; do
	found=
	for p in /proc/[0-9]*; do
		tr '\0' '\n' <$p/environ 2>/dev/null | grep -qx "$1" && kill -9 ${p#/proc/} && found=yes
	done
	[ "$found" ] || exit
done`
	mark := fmt.Sprintf("%s=%d-%d", leashed, os.Getpid(), time.Now().UnixNano())
	cmd := exec.Command("sh", "-c", script, "leash", mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	name, value, _ := strings.Cut(mark, "=")
	os.Setenv(name, value)
	return func() { in.Close(); cmd.Wait() }, nil
}

// leftovers() returns the processes of the tests that still run after the time `within`. It leaves out
// servers.
func leftovers(within time.Duration) (list []string) {
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		list = nil
		for _, p := range marked(os.Getenv(leashed)) {
			if !strings.Contains(p, "/zlockd ") && !strings.Contains(p, "zookeeper") {
				list = append(list, p)
			}
		}
		if len(list) == 0 || time.Now().After(end) {
			return list
		}
	}
}

// marked() returns the processes of a test run that still run.
func marked(run string) (list []string) {
	mark := []byte(leashed + "=" + run + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && pid != os.Getpid() && bytes.Contains(env, mark) && supervise.Alive(pid) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			list = append(list, fmt.Sprintf("%d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return list
}

// descendantsOf returns the processes that a process has started, and their descendants.
func descendantsOf(pid int) (all []int) {
	for _, child := range supervise.ChildrenOf(pid) {
		all = append(append(all, child), descendantsOf(child)...)
	}
	return all
}
