//go:build !windows

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// target is what zlock ends when a lock is lost: a process group or, in the foreground, where
// zlock itself is in that group, a process and its descendants.
type target struct {
	pid   int
	group bool
	// strays returns the processes that COMMAND started and left behind, as far as the system shows
	// them. A group needs no such function.
	strays func() []int
}

// signal sends sig to every process of the target. It continues stopped processes, because
// only KILL ends a process that does not run.
func (t target) signal(sig syscall.Signal) {
	sigs := []syscall.Signal{sig}
	if sig != syscall.SIGKILL && sig != syscall.SIGCONT && sig != syscall.SIGWINCH {
		sigs = append(sigs, syscall.SIGCONT)
	}
	pids := []int{-t.pid}
	if !t.group {
		pids = descendants(append(t.left(), t.pid)...)
	}
	for _, s := range sigs {
		for _, pid := range pids {
			_ = syscall.Kill(pid, s)
		}
	}
}

// left returns the strays, if there may be any.
func (t target) left() []int {
	if t.strays == nil {
		return nil
	}
	return t.strays()
}

// alive reports whether a process of the target still runs. Zombies do not.
func (t target) alive() bool {
	if t.group {
		return groupAlive(t.pid)
	}
	return processAlive(t.pid) || len(t.left()) > 0
}

// child is COMMAND.
type child struct {
	target
	news   chan news          // of the guard; COMMAND's end is the last
	status syscall.WaitStatus // valid once the news of the end has come
}

// code returns the exit code for COMMAND's end.
func (c *child) code() int {
	if c.status.Signaled() {
		return signalCode(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// finish ends the processes that COMMAND left running when it ended, and returns when none is left:
// until then the lock must not move. It calls say if that takes long.
func (c *child) finish(grace time.Duration, say func(string, ...any)) {
	c.signal(syscall.SIGTERM)
	kill := time.Now().Add(grace)
	complain := kill.Add(5 * time.Second)
	most := 50 * time.Millisecond
	for pause := time.Millisecond; c.alive(); pause = min(2*pause, most) {
		time.Sleep(pause)
		if time.Now().After(kill) {
			c.signal(syscall.SIGKILL)
		}
		if time.Now().After(complain) {
			say("processes of group %d cannot be killed; the lock is kept", c.pid)
			complain = complain.Add(time.Hour)
			most = time.Second // each look reads the process table
		}
	}
}

// runPlain runs COMMAND without a lock: COMMAND receives the signals that zlock receives, but not
// a second time those that a terminal sends to both.
func runPlain(exe executable) (int, error) {
	sigs := listenForCommand()
	defer signal.Stop(sigs)
	cmd := exec.Command(exe.path)
	cmd.Args = exe.argv
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 0, cli.Exitf(notStarted(err), "%w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-sigs:
			if !isTerminal(os.Stdin) || !slices.Contains(terminalSignals, sig) {
				_ = cmd.Process.Signal(sig)
			}
		case err := <-done:
			if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
				return 0, err
			}
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			return (&child{status: status}).code(), nil
		}
	}
}
