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

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// The type running is a 'zlock run' with a COMMAND and COMMAND's child. COMMAND and the child ignore TERM,
// and write the time again and again until they are killed.
type running struct {
	cmd   *exec.Cmd
	beats string // the name of the file with these times
	pids  []int
	// `processes` refers to the processes with the ids `pids`. The ids alone are not enough: scripts that sleep
	// in a loop use up all ids in half a minute, and then the system gives an id to another process.
	processes []*os.Process
}

// `stubborn` is a COMMAND that only KILL ends.
const stubborn = `trap "" TERM INT HUP; date +%s%N >>"$1"
(trap "" TERM INT HUP; while :; do date +%s%N >>"$1"; sleep .02; done) &
echo $$ $! >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"
while :; do sleep .02; done`

func startRun(t *testing.T, lock string, options ...string) *running {
	t.Helper()
	return startCommand(t, stubborn, lock, options...)
}

// startCommand runs a script under a lock. The script gets a file name, and writes its process ids to that
// file with the suffix .pids.
func startCommand(t *testing.T, script, lock string, options ...string) *running {
	t.Helper()
	r := &running{beats: filepath.Join(t.TempDir(), "beats")}
	args := append([]string{"run"}, options...)
	args = append(args, lock, "--", "sh", "-c", script, "sh", r.beats)
	r.cmd = exec.Command(filepath.Join(built.dir, "zlock"), args...)
	r.cmd.Env = scriptEnv(t)
	r.cmd.Stdout, r.cmd.Stderr = os.Stderr, os.Stderr
	// zlock gets a process group of its own, as a shell gives to each job.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.OK(t, r.cmd.Start())
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGCONT)
		r.cmd.Process.Kill()
		for _, p := range r.processes {
			p.Kill()
			p.Release()
		}
		r.cmd.Wait()
	})
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(r.beats + ".pids"); err == nil {
			for _, f := range strings.Fields(string(b)) {
				pid, _ := strconv.Atoi(f)
				r.pids = append(r.pids, pid)
				if p, err := os.FindProcess(pid); err == nil {
					r.processes = append(r.processes, p)
				}
			}
			return r
		}
		if time.Now().After(end) {
			t.Fatal("COMMAND did not start")
		}
	}
}

// lastBeat returns the last time at which COMMAND was alive.
func (r *running) lastBeat(t *testing.T) time.Time {
	t.Helper()
	f := must.Get(os.Open(r.beats))(t)
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
		if supervise.Alive(pid) {
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

// nextHolder starts another zlock that waits for the lock. The channel gets the time when it gets the lock.
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

// After kill -9 of zlock, or of its whole process group, COMMAND ends before the next holder gets the lock.
func TestCommandDiesBeforeTheLockMovesWhenZlockIsKilled(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("group=%v", group), func(t *testing.T) {
			t.Parallel()
			r := startRun(t, "/k", "--session-timeout", "20", "-k", "1")
			next := nextHolder(t, r.cmd.Env, "/k")
			pid := r.cmd.Process.Pid
			if group {
				pid = -pid
			}
			syscall.Kill(pid, syscall.SIGKILL)
			r.cmd.Wait()
			r.awaitGone(t, soon)
			if granted, last := <-next, r.lastBeat(t); !granted.After(last) {
				t.Fatalf("the next holder began at %v, COMMAND lived until %v", granted, last)
			}
		})
	}
}

// A stopped zlock can neither keep the session alive nor kill COMMAND, but its guard kills COMMAND in time.
func TestCommandDiesBeforeTheLockMovesWhenZlockIsStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 6 s: make test-all")
	}
	t.Parallel()
	for _, option := range []string{"term", "kill"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				longest := pauses()
				r := startRun(t, "/s", "--session-timeout", "6", "-k", "1", "--on-lost", option)
				next := nextHolder(t, r.cmd.Env, "/s")
				syscall.Kill(r.cmd.Process.Pid, syscall.SIGSTOP)
				granted := <-next
				last, gone := r.lastBeat(t), r.gone()
				pause, slack := longest(), granted.Sub(last)
				syscall.Kill(r.cmd.Process.Pid, syscall.SIGCONT)
				code := exitCode(r.cmd.Wait())
				expect.Equal(t, code, call.ExitLost, "exit code %d after the loss", code)
				if gone && slack >= time.Second {
					return
				}
				must.That(t, pause > time.Second,
					"COMMAND lived until %v before the next holder began (gone: %v)", slack, gone)
				t.Logf("the machine stood still for %v, and COMMAND lived until %v before the next holder", pause, slack)
			}
			t.Error("the machine is too busy to end a process")
		})
	}
}

// A stopped zlock does not notice that --max-hold is over, but its guard knows the limit. The lock moves when
// the session ends.
func TestCommandDiesAtTheLimitOfAStoppedZlock(t *testing.T) {
	t.Parallel()
	for range 5 {
		longest := pauses()
		r := startRun(t, "/b", "--max-hold", "3", "-k", "0.5", "--session-timeout", "12")
		syscall.Kill(r.cmd.Process.Pid, syscall.SIGSTOP)
		granted := <-nextHolder(t, r.cmd.Env, "/b", "--max-hold", "5")
		last, gone := r.lastBeat(t), r.gone()
		pause := longest()
		if gone && granted.After(last) {
			return
		}
		must.That(t, pause > time.Second, "the next holder began at %v, COMMAND lived until %v (gone: %v)",
			granted, last, gone)
		t.Logf("the machine stood still for %v, and no guard can act within the two seconds that it has", pause)
	}
	t.Error("the machine is too busy to end a process")
}

// pauses() begins to watch for pauses of this process. longest() returns the longest one since then.
func pauses() (longest func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for last := time.Now(); ; {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-stop:
				most <- longest
				return
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-most
	}
}

// A signal for COMMAND's parent reaches zlock, which passes it on.
func TestSignalForTheParentReachesZlock(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap 'exit 9' TERM; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"; kill -TERM $PPID; while :; do sleep .02; done`, "/p")
	expect.Equal(t, exitCode(r.cmd.Wait()), 9, "exit code")
}

// If COMMAND runs in the foreground, an interrupt for its parent also reaches COMMAND. A terminal does not
// send the guard this signal, because the guard is in another process group.
func TestInterruptOfTheParentReachesCommand(t *testing.T) {
	t.Parallel()
	r := startCommand(t, `trap 'exit 9' INT; echo $$ >"$1.pids.tmp"; mv "$1.pids.tmp" "$1.pids"
sleep .7; kill -INT $PPID; while :; do sleep .02; done`, "/p", "--foreground")
	expect.Equal(t, exitCode(r.cmd.Wait()), 9, "exit code")
}

// The guard lives until zlock has given back the lock and closed the session. If zlock is killed before that,
// the guard does this, and no lock stays behind. elect --restart starts a new guard for each wait.
func TestGuardClosesTheSessionAfterCommand(t *testing.T) {
	t.Parallel()
	const long = "40"
	env := scriptEnv(t)
	p := must.Get(faultproxy.New(server(t)))(t)
	defer p.Close()
	file := filepath.Join(t.TempDir(), "go")
	script := `: >"$1.up"; until [ -e "$1" ]; do sleep .02; done`
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), append(args, "--session-timeout", long, "/c", "--",
			"sh", "-c", script, "sh", file)...)
		cmd.Env = env
		must.OK(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		must.Await(t, "COMMAND runs", time.Minute, func() bool {
			_, err := os.Stat(file + ".up")
			return err == nil
		})
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		cmd.Process.Kill()
		cmd.Wait()
	}
	waiters := func() string {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "waiters", "-o", "plain", "/c")
		cmd.Env = env
		out, _ := cmd.Output()
		return string(out)
	}

	for _, lost := range []string{"term", "warn"} {
		run := start("run", "-S", p.Addr(), "--on-lost", lost)
		guard := guardOf(t, run.Process.Pid)
		begun := time.Now()
		next := nextHolder(t, env, "/c")
		must.Await(t, "the next one waits", time.Minute, func() bool { return waiters() != "" })
		p.Blackhole(true) // the server's answer to the release does not come
		must.OK(t, os.WriteFile(file, nil, 0o600))
		must.Await(t, "COMMAND ends", time.Minute, func() bool {
			return len(supervise.ChildrenOf(guard)) == 0
		})
		kill(run)
		p.Blackhole(false)
		took := (<-next).Sub(begun)
		expect.That(t, took < 30*time.Second, "--on-lost %s: the lock moved after %v", lost, took)
		must.OK(t, errors.Join(os.Remove(file), os.Remove(file+".up")))
	}
	run := start("run", "--on-lost", "warn")
	next := nextHolder(t, env, "/c")
	must.Await(t, "the next one waits", time.Minute, func() bool { return waiters() != "" })
	kill(run) // zlock is dead, but COMMAND goes on
	ended := time.Now()
	must.OK(t, os.WriteFile(file, nil, 0o600))
	took := (<-next).Sub(ended)
	expect.That(t, took < 30*time.Second, "COMMAND went on without zlock: the lock moved %v after its end", took)
	must.OK(t, errors.Join(os.Remove(file), os.Remove(file+".up")))
	elect := start("elect", "--restart")
	other := exec.Command(filepath.Join(built.dir, "zlock"), "hold", "/c")
	other.Env = env
	in := must.Get(other.StdinPipe())(t)
	defer in.Close()
	must.OK(t, other.Start())
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })
	must.Await(t, "the other one waits", time.Minute, func() bool { return waiters() != "" })
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.Await(t, "the leader waits again", time.Minute, func() bool {
		return strings.Contains(waiters(), fmt.Sprintf("\t%d\t", elect.Process.Pid))
	})
	kill(elect)
	must.Await(t, "its place is free", 30*time.Second, func() bool { return waiters() == "" })
}

// After SIGKILL of zlock, its guard ends COMMAND and closes the session. So the lock moves as soon as COMMAND
// is dead, and not only when the session times out. The guard of a killed waiter closes the session, too.
func TestGuardClosesTheSession(t *testing.T) {
	t.Parallel()
	const long = 40 * time.Second
	r := startRun(t, "/c", "-k", "0.5", "--session-timeout", long.String())
	waiter := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--session-timeout", long.String(), "/c",
		"--", "true")
	waiter.Env = r.cmd.Env
	must.OK(t, waiter.Start())
	show := func() string {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "waiters", "-o", "plain", "/c")
		cmd.Env = r.cmd.Env
		out, _ := cmd.Output()
		return string(out)
	}
	must.Await(t, "no client waits", 30*time.Second, func() bool { return show() != "" })
	begun := time.Now()
	next := nextHolder(t, r.cmd.Env, "/c")
	waiter.Process.Kill()
	waiter.Wait()
	r.cmd.Process.Kill()
	r.cmd.Wait()
	granted := <-next
	last := r.lastBeat(t)
	must.That(t, r.gone(), "COMMAND lives while the next holder has the lock")
	must.That(t, granted.After(last), "the next holder began at %v, COMMAND lived until %v", granted, last)
	took := granted.Sub(begun)
	expect.That(t, took <= long*3/4, "the lock moved after %v", took)
}

// guardOf finds zlock's guard.
func guardOf(t *testing.T, zlock int) int {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, pid := range supervise.ChildrenOf(zlock) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.Contains(string(b), "__guard") {
				return pid
			}
		}
	}
	t.Fatal("no guard")
	return 0
}

func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

// COMMAND in the foreground has no process group of its own. zlock still finds what COMMAND leaves behind,
// because zlock adopts orphans.
func TestForegroundCommandLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", "-k", "0.3", "/f", "--", "sh",
		"-c",
		`(trap "" TERM; while :; do sleep .05; done) & echo $! >"$1"`, "sh", file)
	cmd.Env = scriptEnv(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := must.Get(os.ReadFile(file))(t)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must.OK(t, err)
	must.That(t, !supervise.Alive(pid), "process %d is alive, %v", pid, err)
}

// When COMMAND ends, another process in zlock's group is stopped, and there is no terminal. The group must
// then get no SIGHUP, so that the script that called zlock continues.
func TestForegroundCommandSparesTheGroup(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `sleep 60 & kill -STOP $!
"$1" run --foreground /stopped -- true; echo "zlock says $?"; kill -KILL $!`, "sh", filepath.Join(built.dir, "zlock"))
	cmd.Env = scriptEnv(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	must.OK(t, err)
	must.Has(t, string(out), "zlock says 0\n", "the script: standard output")
}

// When zlock is killed, its guard ends all processes that come from COMMAND. It does so even if COMMAND
// itself has already ended.
func TestForegroundGuardEndsWhatAnObedientCommandLeavesBehind(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", "-k", "0.3", "/g", "--", "sh",
		"-c",
		`env -i PATH="$PATH" sh -c 'trap "" TERM; while :; do sleep .05; done' & echo $! >"$1.new"; sleep .2
mv "$1.new" "$1"; wait`, "sh", file)
	cmd.Env = scriptEnv(t)
	must.OK(t, cmd.Start())
	var pid int
	for end := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if time.Now().After(end) {
			t.Fatal("the command did not start")
		}
	}
	must.OK(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); supervise.Alive(pid); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("what the command started lives on")
		}
	}
}

// While zlock ends what COMMAND left behind, it sends no heartbeats to the guard. The guard leaves the work
// to zlock, and acts by its own clock if zlock is stopped.
func TestWhatCommandLeavesBehindIsEndedByZlock(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 8 s: make test-all")
	}
	t.Parallel()
	for name, code := range map[string]int{"runs": call.ExitOK, "stopped": call.ExitLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startTalker(t, filepath.Join(built.dir, "zlock"), "run", "-k", "8", "--session-timeout", "17", "/l",
				"--", "sh", "-c", `(trap "echo told" TERM; echo up; while :; do sleep .1; done) & read x; true`)
			c.await(t, "up")
			must.OK(t, c.in.Close())
			c.await(t, "told")
			if code == call.ExitLost {
				must.OK(t, c.Process.Signal(syscall.SIGSTOP))
				time.Sleep(10 * time.Second)
				must.OK(t, c.Process.Signal(syscall.SIGCONT))
			}
			said, _ := io.ReadAll(c.out)
			c.Wait()
			got := c.ProcessState.ExitCode()
			expect.Equal(t, got, code, "exit code %d", got)
			expect.Lacks(t, string(said), "guard:")
		})
	}
}
