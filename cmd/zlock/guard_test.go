package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// running is a 'zlock run' whose COMMAND has a child of its own, both deaf to
// TERM, that write the time until they are killed.
type running struct {
	cmd   *exec.Cmd
	beats string // file
	pids  []int
}

// stubborn is a COMMAND that survives everything but KILL.
const stubborn = `trap "" TERM INT HUP
(trap "" TERM INT HUP; while :; do date +%s%N >>"$1"; sleep .02; done) &
echo $$ $! >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"
while :; do sleep .02; done`

func startRun(t *testing.T, lock string, options ...string) *running {
	t.Helper()
	return startCommand(t, stubborn, lock, options...)
}

// startCommand runs a script under a lock. It is called with a file name, and
// writes its processes into that with .pids behind.
func startCommand(t *testing.T, script, lock string, options ...string) *running {
	t.Helper()
	r := &running{beats: filepath.Join(t.TempDir(), "beats")}
	args := append([]string{"run"}, options...)
	args = append(args, lock, "--", "sh", "-c", script, "sh", r.beats)
	r.cmd = exec.Command(filepath.Join(built.dir, "zlock"), args...)
	r.cmd.Env = scriptEnv(t)
	r.cmd.Stdout, r.cmd.Stderr = os.Stderr, os.Stderr
	// Its own group, as a shell gives a job.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGCONT)
		r.cmd.Process.Kill()
		for _, pid := range r.pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		r.cmd.Wait()
	})
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(r.beats + ".pids"); err == nil {
			for _, f := range strings.Fields(string(b)) {
				pid, _ := strconv.Atoi(f)
				r.pids = append(r.pids, pid)
			}
			return r
		}
		if time.Now().After(end) {
			t.Fatal("COMMAND did not start")
		}
	}
}

// lastBeat is when COMMAND was last seen alive.
func (r *running) lastBeat(t *testing.T) time.Time {
	t.Helper()
	f, err := os.Open(r.beats)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last int64
	for s := bufio.NewScanner(f); s.Scan(); {
		if n, err := strconv.ParseInt(s.Text(), 10, 64); err == nil {
			last = n
		}
	}
	return time.Unix(0, last)
}

func (r *running) gone() bool {
	for _, pid := range r.pids {
		if processAlive(pid) {
			return false
		}
	}
	return true
}

func (r *running) awaitGone(t *testing.T, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); !r.gone(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("COMMAND's process group is alive after %v", within)
		}
	}
}

// nextHolder takes the lock in the same chroot as soon as it moves, and returns when.
func nextHolder(t *testing.T, env []string, lock string, options ...string) <-chan time.Time {
	args := append(append([]string{"run", "-w", "120"}, options...), lock, "--", "date", "+%s%N")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), args...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	ch := make(chan time.Time, 1)
	go func() {
		out, err := cmd.Output()
		n, perr := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil || perr != nil {
			fmt.Fprintln(os.Stderr, "next holder:", err, perr)
		}
		ch <- time.Unix(0, n)
	}()
	return ch
}

// kill -9 of zlock, and of everything in its own process group, must not leave
// COMMAND running beside the next holder.
func TestCommandDiesBeforeTheLockMovesWhenZlockIsKilled(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("group=%v", group), func(t *testing.T) {
			t.Parallel()
			r := startRun(t, "/k", "--session-timeout", "6", "-k", "1")
			next := nextHolder(t, r.cmd.Env, "/k")
			pid := r.cmd.Process.Pid
			if group {
				pid = -pid
			}
			syscall.Kill(pid, syscall.SIGKILL)
			r.cmd.Wait()
			r.awaitGone(t, 3*time.Second)
			if granted, last := <-next, r.lastBeat(t); !granted.After(last) {
				t.Fatalf("the next holder began at %v, COMMAND lived until %v", granted, last)
			}
		})
	}
}

// A stopped zlock can neither keep the session alive nor kill COMMAND.
func TestCommandDiesBeforeTheLockMovesWhenZlockIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("asks for a margin of time, which a busy machine does not give: make test-all")
	}
	t.Parallel()
	for _, option := range []string{"term", "kill"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, "/s", "--session-timeout", "6", "-k", "1", "--on-lost", option)
			next := nextHolder(t, r.cmd.Env, "/s")
			syscall.Kill(r.cmd.Process.Pid, syscall.SIGSTOP)
			granted := <-next
			last := r.lastBeat(t)
			if !r.gone() || !granted.After(last) {
				t.Fatalf("the next holder began at %v, COMMAND lived until %v (gone: %v)", granted, last, r.gone())
			}
			if slack := granted.Sub(last); slack < time.Second {
				t.Errorf("only %v between COMMAND's end and the next holder", slack)
			}
			syscall.Kill(r.cmd.Process.Pid, syscall.SIGCONT)
			if code := exitCode(r.cmd.Wait()); code != exitLost {
				t.Errorf("exit code %d after the loss, want %d", code, exitLost)
			}
		})
	}
}

// A lock taken with --max-hold may be broken by a waiter while the session lives
// on. A stopped zlock would not notice; its guard must know the limit.
func TestCommandDiesBeforeTheLockIsBroken(t *testing.T) {
	t.Parallel()
	r := startRun(t, "/b", "--max-hold", "1", "-k", "0.5")
	syscall.Kill(r.cmd.Process.Pid, syscall.SIGSTOP)
	begun := time.Now()
	granted := <-nextHolder(t, r.cmd.Env, "/b", "--max-hold", "5")
	last := r.lastBeat(t)
	if !r.gone() || !granted.After(last) {
		t.Fatalf("the next holder began at %v, COMMAND lived until %v (gone: %v)", granted, last, r.gone())
	}
	if waited := granted.Sub(begun); waited > 15*time.Second {
		t.Logf("the lock was not broken but expired after %v", waited)
	}
}

// A guard that is killed is replaced, and does not take COMMAND with it.
func TestGuardThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	r := startRun(t, "/g", "--session-timeout", "6", "-k", "1")
	first := guardOf(t, r.cmd.Process.Pid, 0)
	syscall.Kill(first, syscall.SIGKILL)
	second := guardOf(t, r.cmd.Process.Pid, first)
	if r.gone() {
		t.Fatal("COMMAND went with its guard")
	}
	// TERM does not end a guard, once it is in place: it ends when its work does.
	awaitIgnoring(t, second, syscall.SIGTERM)
	syscall.Kill(second, syscall.SIGTERM)
	r.cmd.Process.Kill()
	r.cmd.Wait()
	r.awaitGone(t, 4*time.Second)
	for end := time.Now().Add(5 * time.Second); processAlive(second); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the guard outlives its work")
		}
	}
}

// guardOf finds zlock's guard, other than not.
func guardOf(t *testing.T, zlock, not int) int {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, p := range processes(func(p process) bool { return p.parent == zlock && p.pid != not && p.running() }) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			if strings.Contains(string(b), "__guard") {
				return p.pid
			}
		}
	}
	t.Fatal("no guard")
	return 0
}

// awaitIgnoring waits until a process ignores a signal.
func awaitIgnoring(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(b), "SigIgn:")
		line, _, _ := strings.Cut(rest, "\n")
		mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
		if err == nil && mask>>(sig-1)&1 != 0 {
			return
		}
	}
	t.Fatalf("process %d does not ignore %v", pid, sig)
}

func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

// In the foreground COMMAND has no group of its own; what it leaves behind is
// found as the orphans that zlock adopts.
func TestForegroundCommandLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", "-k", "0.3", "/f", "--", "sh", "-c",
		`(trap "" TERM; while :; do sleep .05; done) & echo $! >"$1"`, "sh", file)
	cmd.Env = scriptEnv(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || processAlive(pid) {
		t.Fatalf("process %d is alive, %v", pid, err)
	}
}

// When zlock is killed there is nobody to adopt them: the guard must have
// remembered what came from COMMAND, which may itself obey and be gone.
func TestForegroundGuardEndsWhatAnObedientCommandLeavesBehind(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", "-k", "0.3", "/g", "--", "sh", "-c",
		`(trap "" TERM; while :; do sleep .05; done) & echo $! >"$1.new"; sleep .2; mv "$1.new" "$1"; wait`, "sh", file)
	cmd.Env = scriptEnv(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for end := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if time.Now().After(end) {
			t.Fatal("the command did not start")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); processAlive(pid); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("what the command started lives on")
		}
	}
}

// The guard by itself: the end of its input, or of the time, is the end of the group.
func TestWatchman(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		talk func(in io.Writer)
		stay bool
	}{
		"done":            {func(in io.Writer) { say(in, "deadline", time.Hour); fmt.Fprintln(in, "done") }, true},
		"zlock dies":      {func(in io.Writer) { say(in, "deadline", time.Hour) }, false},
		"deadline passes": {func(in io.Writer) { say(in, "deadline", 50*time.Millisecond); time.Sleep(time.Second) }, false},
		"deadline moves": {func(in io.Writer) {
			say(in, "deadline", 50*time.Millisecond)
			say(in, "deadline", time.Hour)
			time.Sleep(600 * time.Millisecond)
			fmt.Fprintln(in, "done")
		}, true},
		"kill after loss": {func(in io.Writer) {
			say(in, "deadline", time.Hour)
			say(in, "lost", 50*time.Millisecond)
			time.Sleep(time.Second)
		}, false},
		"nothing was said": {func(in io.Writer) { time.Sleep(100 * time.Millisecond) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			victim := exec.Command("sh", "-c", `trap "" TERM; while :; do sleep .02; done`)
			victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { victim.Wait(); close(ended) }()
			defer syscall.Kill(-victim.Process.Pid, syscall.SIGKILL)
			g := exec.Command(filepath.Join(built.dir, "zlock"), "__guard", "--group=true", "--signal=15", "--kill-after=100ms",
				"--pid="+strconv.Itoa(victim.Process.Pid))
			in, err := g.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Start(); err != nil {
				t.Fatal(err)
			}
			tc.talk(in)
			in.Close()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			if tc.stay {
				select {
				case <-ended:
					t.Error("the group was ended")
				case <-time.After(300 * time.Millisecond):
				}
				return
			}
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Error("the group lives")
			}
		})
	}
}

func say(in io.Writer, word string, after time.Duration) {
	fmt.Fprintf(in, "%s %d\n", word, bootClock()+after)
}
