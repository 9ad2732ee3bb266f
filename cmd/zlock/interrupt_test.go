package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Ctrl-C ends zlock and COMMAND at any moment of their start. The exit code shows the signal, not a failure.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	for i := range 30 {
		cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "--foreground", fmt.Sprintf("/interrupted-%d",
			i%3), "--", "sleep", "1000")
		cmd.Env = scriptEnv(t)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must.OK(t, cmd.Start())
		time.Sleep(rand.N(80 * time.Millisecond)) // a random moment of the start
		syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		watchdog := time.AfterFunc(30*time.Second, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		err := cmd.Wait()
		watchdog.Stop()
		var exit *exec.ExitError
		must.That(t, errors.As(err, &exit), "%v", err)
		status := exit.Sys().(syscall.WaitStatus)
		if !(status.Signaled() && status.Signal() == syscall.SIGINT) && status.ExitStatus() != 130 {
			t.Errorf("round %d: %v\n%s", i, err, stderr.String())
		}
	}
}

// Ctrl-C ends a shell's loop around zlock, because zlock dies of the signal like COMMAND.
func TestInterruptEndsTheLoopOfAShell(t *testing.T) {
	t.Parallel()
	const command = ` -- sh -c 'echo >>"$1.up"; exec sleep 1000' sh "$1"`
	for name, zlock := range map[string]string{
		"in the foreground":   "zlock run --foreground /i" + command,
		"in a group":          "zlock run --foreground=false /i" + command,
		"waits":               `echo >>"$1.up"; zlock run /busy -- true`,
		"waits for an answer": `echo >>"$1.up"; zlock hold /busy`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "f")
			holder := startTalker(t, filepath.Join(built.dir, "zlock"), "hold", "/busy")
			holder.await(t, "locked")
			cmd := exec.Command("bash", "-c", `for i in 1 2 3; do `+zlock+`; done`, "bash", file)
			cmd.Env = holder.env
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			must.OK(t, cmd.Start())
			t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			cl := holder.client(t)
			must.Await(t, "it runs or waits", time.Minute, func() bool {
				q, err := cl.Inspector().Inspect(t.Context(), "/busy")
				up, _ := os.ReadFile(file + ".up") // the shell writes this file a moment after COMMAND has begun
				return len(up) > 0 && err == nil && (strings.HasPrefix(name, "in ") || len(q.Waiters) == 1)
			})
			syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			cmd.Wait()
			expect.Equal(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), syscall.SIGINT, "what ended the shell")
			expect.Equal(t, string(must.Get(os.ReadFile(file+".up"))(t)), "\n", "rounds")
		})
	}
}

// If all servers are gone, a zlock that has lost its lock ends at once, and does not wait for them.
func TestLossWithDeadServersEndsAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		longest := pauses()
		took := lossWithDeadServers(t)
		pause := longest()
		if took <= 4*time.Second {
			return
		}
		must.That(t, pause > time.Second, "zlock ended %v after the loss", took)
		t.Logf("%v after the loss, but the machine stood still for %v", took, pause)
	}
	t.Error("the machine is too busy to measure a time on it")
}

// lossWithDeadServers returns how long zlock lived after it had reported the loss to COMMAND.
func lossWithDeadServers(t *testing.T) time.Duration {
	var server string
	for _, kv := range scriptEnv(t) {
		if s, ok := strings.CutPrefix(kv, "ZLOCK_SERVERS="); ok {
			server, _, _ = strings.Cut(s, "/")
		}
	}
	p := must.Get(faultproxy.New(server))(t)
	defer p.Close()
	cmd := exec.Command(filepath.Join(built.dir, "zlock"), "run", "-S", p.Addr(), "--session-timeout", "5", "-k",
		"0.1", "/dead-servers", "--",
		"sh", "-c", "echo up; trap 'echo told; exit 0' TERM; while :; do sleep .05; done")
	cmd.Env = scriptEnv(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	line := make([]byte, 100)
	out.Read(line)
	p.Close()
	_, _ = out.Read(line) // returns when zlock has reported the loss
	told := time.Now()
	cmd.Wait()
	took := time.Since(told)
	must.Equal(t, cmd.ProcessState.ExitCode(), call.ExitLost, "exit code")
	must.Lacks(t, stderr.String(), "deadline exceeded")
	return took
}

// talker is a zlock whose input and output are pipes of the test.
type talker struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	env []string
}

func startTalker(t *testing.T, zlock string, args ...string) *talker {
	t.Helper()
	c := &talker{Cmd: exec.Command(zlock, args...), env: scriptEnv(t)}
	c.Env = c.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	must.OK(t, err1)
	must.OK(t, err2)
	c.in, c.out, c.Stderr = in, bufio.NewReader(out), c.Stdout
	must.OK(t, c.Start())
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGCONT)
		c.Process.Kill()
		c.Wait()
	})
	return c
}

// await() reads the output of zlock and COMMAND until a line contains one of the texts, and returns which.
func (c *talker) await(t *testing.T, texts ...string) int {
	t.Helper()
	for {
		line, err := c.out.ReadString('\n')
		must.OK(t, err, "instead of %q", texts)
		for i, text := range texts {
			if strings.Contains(line, text) {
				return i
			}
		}
	}
}

// client() opens a session in the part of the tree that the talker uses.
func (c *talker) client(t *testing.T) *client.Client {
	t.Helper()
	var addr, root string
	for _, kv := range c.env {
		if s, ok := strings.CutPrefix(kv, "ZLOCK_SERVERS="); ok {
			addr = s
		} else if s, ok := strings.CutPrefix(kv, "ZLOCK_CHROOT="); ok {
			root = s
		}
	}
	cl := must.Get(client.Dial(t.Context(), addr+root))(t)
	t.Cleanup(func() { cl.Close(context.Background()) })
	return cl
}

// The lock is lost just before the input ends. zlock hold fails, whichever of the two it notices first.
func TestHoldTellsALossOfTheLastMoment(t *testing.T) {
	t.Parallel()
	for range 5 {
		c := startTalker(t, filepath.Join(built.dir, "zlock"), "hold", "/h")
		c.await(t, "locked")
		cl := c.client(t)
		q, err := cl.Inspector().Inspect(t.Context(), "/h")
		must.OK(t, err)
		must.Equal(t, len(q.Holders), 1, "number of holders %v", q.Holders)
		c.Process.Signal(syscall.SIGSTOP)
		if err := cl.Inspector().Break(t.Context(), "/h", q.Holders[0].Node,
			fence.Token(q.Holders[0].Token)); err != nil {
			t.Fatal(err)
		}
		c.in.Close()
		c.Process.Signal(syscall.SIGCONT)
		c.Wait()
		expect.Equal(t, c.ProcessState.ExitCode(), call.ExitLost, "exit code")
	}
}

// If a client asks for a lock without a name, as Curator's clients do, zlock hold still reports the request.
func TestHoldNamesTheClientThatAsksForTheLock(t *testing.T) {
	t.Parallel()
	c := startTalker(t, filepath.Join(built.dir, "zlock"), "hold", "/h")
	c.await(t, "locked")
	cl := c.client(t)
	q := must.Get(cl.Inspector().Inspect(t.Context(), "/h"))(t)
	must.OK(t, cl.Inspector().Revoke(t.Context(), "/h", q.Holders[0].Node, recipe.Revocation{Reason: "why"}))
	c.await(t, "zlock: a client asks for /h back: why")
	must.OK(t, c.in.Close())
	c.Wait()
	expect.Equal(t, c.ProcessState.ExitCode(), call.ExitOK, "exit code")
}

// COMMAND dies with its guard, and the lock is given back only after that.
func TestCommandDiesWithItsGuard(t *testing.T) {
	t.Parallel()
	for _, foreground := range []string{"--foreground=false", "--foreground"} {
		t.Run(foreground, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, "/g", foreground)
			next := nextHolder(t, r.cmd.Env, "/g")
			syscall.Kill(guardOf(t, r.cmd.Process.Pid), syscall.SIGKILL)
			// If the guard dies before it reports the start, zlock says that it could not start COMMAND.
			code := exitCode(r.cmd.Wait())
			expect.That(t, code == 128+int(syscall.SIGKILL) || code == call.ExitFailed, "exit code %d", code)
			granted, last := <-next, r.lastBeat(t)
			expect.That(t, r.gone(), "COMMAND lives while the next holder has the lock")
			expect.That(t, granted.After(last), "the next holder began at %v, COMMAND lived until %v", granted, last)
		})
	}
}

// With --on-lost warn, COMMAND continues without its guard and keeps the lock.
func TestCommandOutlivesItsGuardIfToldTo(t *testing.T) {
	t.Parallel()
	// COMMAND can say "up" before zlock hears from the guard that COMMAND runs. A guard that dies in between has
	// not started COMMAND for zlock, which then gives up: try again.
	var c *talker
	for early := true; early; {
		c = startTalker(t, filepath.Join(built.dir, "zlock"), "run", "--on-lost", "warn", "/g", "--", "sh", "-c",
			"echo up; read x")
		c.await(t, "up")
		syscall.Kill(guardOf(t, c.Process.Pid), syscall.SIGKILL)
		early = c.await(t, "the guard process died; COMMAND continues", "the guard did not start COMMAND") == 1
	}
	if l, err := c.client(t).Mutex("/g").TryLock(t.Context()); err == nil {
		t.Errorf("the lock is free: %v", l)
	}
	must.Get(io.WriteString(c.in, "\n"))(t)
	c.Wait()
	if l, err := c.client(t).Mutex("/g").Lock(t.Context()); err != nil {
		t.Errorf("the lock was not released: %v", err)
	} else {
		l.Unlock(t.Context())
	}
}
