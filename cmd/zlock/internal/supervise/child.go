//go:build !windows

package supervise

import (
	"slices"
	"syscall"
	"time"
)

// target is the set of processes that must end when the lock is lost: COMMAND, its descendants, and COMMAND's
// process group. In the foreground zlock itself is in that group; then `group` is false.
type target struct {
	pid   int
	group bool
	all   bool // whether kin() finds every descendant of COMMAND
	// kin() returns COMMAND and its descendants. It leaves out a process for which spare() returns true, with
	// all descendants of that process. If the system does not list processes, the result is empty.
	kin func(spare func(process) bool) []process
}

func nobody(process) bool { return false }

// signal() sends sig to every process of the target, only once: to some programs, a second signal means more
// than the first. After it, SIGCONT lets stopped processes continue, so that they can end.
//
// The target may contain another zlock. Then the guard and the COMMAND of that zlock get no signal here: that
// zlock passes it on itself, and then releases its own lock. But SIGKILL goes to every process.
func (t target) signal(sig syscall.Signal) {
	sigs := []syscall.Signal{sig}
	if sig != syscall.SIGKILL && sig != syscall.SIGCONT && sig != syscall.SIGWINCH {
		sigs = append(sigs, syscall.SIGCONT)
	}
	spare := func(p process) bool { return p.name == guardName }
	if sig == syscall.SIGKILL {
		spare = nobody
	}
	var kin []process
	if t.all || !t.group {
		kin = t.kin(spare)
	}
	for _, s := range sigs {
		if t.group {
			_ = syscall.Kill(-t.pid, s)
		}
		for _, p := range kin {
			if sig == syscall.SIGKILL || !t.group || p.group != t.pid {
				p.signal(s)
			}
		}
		if !t.group && !t.all && !slices.ContainsFunc(kin, func(p process) bool { return p.ours == t.pid }) {
			_ = syscall.Kill(t.pid, s)
		}
	}
}

// child is COMMAND.
type child struct {
	target
	news   chan news          // messages of the guard, until COMMAND ends
	status syscall.WaitStatus // valid after the guard has reported COMMAND's end
	alone  chan struct{}      // closed when the guard reports that it has no child any longer
	bereft chan struct{}      // closed when the guard is dead
}

// alive() reports whether COMMAND, which has ended, has left a process running. The guard knows, because it
// waits for all its children. If the guard is dead, alive() reads the process table.
func (c *child) alive() bool {
	switch {
	case !c.all:
		return c.group && groupAlive(c.pid)
	case closed(c.bereft):
		return slices.ContainsFunc(c.kin(nobody), process.running)
	}
	return !closed(c.alone)
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// code() returns the exit code for COMMAND's end.
func (c *child) code() int {
	if c.status.Signaled() {
		return SignalCode(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// finish() ends the processes that COMMAND left running when it ended. It returns only when none of them is
// left, because the lock must not move before. It calls say() if that takes long.
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
			say("processes that COMMAND (%d) started cannot be killed; the lock is kept", c.pid)
			complain = complain.Add(time.Hour)
			most = time.Second // from here on look rarely: signal() reads the whole process table each time
		}
	}
}
