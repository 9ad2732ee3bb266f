//go:build !windows

package supervise

import (
	"slices"
	"syscall"
	"time"
)

// target is the set of processes that zlock ends when a lock is lost: COMMAND and its descendants, and
// COMMAND's process group. If zlock itself is in that group (in the foreground), the group does not count.
type target struct {
	pid   int
	group bool
	all   bool // whether kin() finds every descendant of COMMAND
	// kin() returns COMMAND and its descendants. It omits the processes for which spare() returns true, and
	// their descendants. It returns none if the system does not list processes.
	kin func(spare func(process) bool) []process
}

func nobody(process) bool { return false }

// signal() sends sig to every process of the target once, because a second signal may mean more than the
// first. It also continues stopped processes, because a stopped process ends only by KILL.
//
// If a zlock is among these processes, its guard and its own COMMAND get no signal from here: that zlock
// passes the signal on and then releases its lock. KILL goes to every process.
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
	alone  chan struct{}      // closed when the guard reports that no child is left
	bereft chan struct{}      // closed when the guard is dead
}

// alive() reports whether a process of an ended COMMAND still runs. The guard, which waits for its children,
// knows that exactly. Without a guard zlock reads the process table.
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

// finish() ends the processes that COMMAND left running when it ended. It returns when none is left, because
// the lock must not move earlier. It calls say() if the wait is long.
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
			most = time.Second // look less often, because each signal reads the process table
		}
	}
}
