//go:build !windows

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// lossFlags say what happens to COMMAND when its lock is lost.
type lossFlags struct {
	onLost    syscall.Signal // first signal on loss; 0: only a warning
	killAfter time.Duration
	onRevoke  syscall.Signal // on a request to give the lock back; 0: nothing
	nested    time.Duration  // killAfter when an outer zlock ends COMMAND; 0: there is none
}

// grace is how long a COMMAND has at the least after a signal that ends it.
func (l lossFlags) grace() time.Duration {
	if l.nested > 0 {
		return min(l.nested, l.killAfter)
	}
	return l.killAfter
}

// graceWithin returns how long COMMAND has if this zlock runs under the lock of another one, which gives its
// own COMMAND so long: less, so that this zlock gives back its lock before the other one kills it.
func graceWithin(outer string) time.Duration {
	d, err := time.ParseDuration(outer)
	if err != nil {
		return 0
	}
	return max(d-time.Second, d/2)
}

// supervisor stays with COMMAND from its start to the release of the lock.
type supervisor struct {
	holding
	*job
	foreground bool
	child      *child
	started    time.Time // when COMMAND started
	told       bool      // the user told COMMAND to end
	asked      bool      // a process sent TERM
}

// earlySignal is how long after COMMAND's start zlock passes on the signals of a terminal in the
// foreground. The terminal sends them to COMMAND itself, but one that was sent before
// COMMAND was in the group reached zlock alone, and the system may bring it some time later.
// A signal of this time may reach COMMAND twice; without that it may not reach COMMAND at all.
const earlySignal = 500 * time.Millisecond

// zlock passes these signals on to COMMAND. In the foreground the terminal itself sends
// COMMAND the first three.
var (
	terminalSignals  = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}
	forwardedSignals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGCONT}
)

// listenForCommand starts to receive the signals for COMMAND.
func listenForCommand() chan os.Signal {
	return listen(slices.Concat(terminalSignals, forwardedSignals)...)
}

// run makes the guard start COMMAND. It returns COMMAND's exit code, or the one that says what
// became of the lock. When run returns, no process of COMMAND is left, and the lock may be
// released.
func (s *supervisor) run(sigs chan os.Signal) (int, error) {
	defer signal.Stop(sigs)
	outliveReaders()
	l := newLaunch(s.exe, s.environ(s.lease.Sequencers()), s.foreground, s.lossFlags)
	l.Contain, l.Leave = s.flags.contain, s.flags.leave
	child, err := s.guard.start(l, s.deadline())
	if err != nil {
		return 0, err
	}
	s.child, s.started = child, time.Now()
	s.watch(sigs)
	if child.alive() {
		grace := s.killAfter
		if s.asked {
			grace = s.grace()
		}
		s.guard.send(order{Kill: bootClock() + grace}) // zlock sends the signal itself
		child.finish(grace, s.say)
	}
	// A signal that tells to end counts, also if zlock notices it after COMMAND's end.
	signal.Stop(sigs)
	for len(sigs) > 0 {
		s.told = tellsToEnd(<-sigs) || s.told
	}
	if s.code != 0 {
		return s.code, nil
	}
	return child.code(), nil
}

// deadline returns when the lease ends, on the clock shared with the guard.
func (s *supervisor) deadline() time.Duration {
	return bootClock() + time.Until(s.lease.Until())
}

// watch handles signals, loss and requests until COMMAND exits.
func (s *supervisor) watch(sigs <-chan os.Signal) {
	lost, revoked := s.lease.Lost(), s.lease.Asked()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var kill <-chan time.Time
	for {
		select {
		case n := <-s.child.news:
			switch {
			case n.Ended:
				// A COMMAND that exits after a request for the lock was stopped by it, and a lock lost in the
				// last instant was lost while COMMAND ran.
				if s.code == 0 && !s.lease.Valid() {
					s.code = s.lossCode()
				}
				return
			case n.Signal != 0 && !s.told: // no terminal sends to the guard
				s.pass(n.Signal)
			case n.Bereft && s.onLost == 0:
				s.say("the guard process died; COMMAND goes on without one, and its exit code is not known")
			case n.Bereft:
				s.say("the guard process died, and COMMAND with it")
				s.child.signal(syscall.SIGKILL)
			}
		case sig := <-sigs:
			s.forward(sig.(syscall.Signal))
			s.asked = s.asked || sig == syscall.SIGTERM
			// An outer zlock that ends its COMMAND sends CONT behind its signal. One that passes on a signal of
			// the user does not, and then COMMAND may take its time.
			if sig == syscall.SIGCONT && s.asked && s.nested > 0 && kill == nil {
				kill = s.killIn(s.grace())
			}
		case <-lost:
			lost = nil
			if k := s.lost(); kill == nil {
				kill = k
			}
		case r := <-revoked:
			revoked = nil
			s.revoked(r)
		case <-kill:
			s.child.signal(syscall.SIGKILL)
			kill = time.After(100 * time.Millisecond) // for processes forked since
		case <-tick.C:
			if lost != nil {
				s.guard.tell(s.deadline().Truncate(10 * time.Millisecond))
			}
		}
	}
}

// forward passes a signal for zlock on to COMMAND, unless a terminal has sent it to both.
func (s *supervisor) forward(sig syscall.Signal) {
	if s.foreground && time.Since(s.started) > earlySignal && slices.Contains(terminalSignals, os.Signal(sig)) {
		s.told = s.told || tellsToEnd(sig)
		return
	}
	s.pass(sig)
}

// pass sends a signal to COMMAND, and remembers whether it tells COMMAND to end.
func (s *supervisor) pass(sig syscall.Signal) {
	s.told = s.told || tellsToEnd(sig)
	pids := []int{s.child.pid}
	switch {
	case !s.foreground:
		pids[0] = -pids[0]
	case s.flags.contain && slices.Contains(terminalSignals, os.Signal(sig)):
		pids = childrenOf(s.child.pid) // the keeper does not pass on what a terminal sends
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// lost signals COMMAND, and returns when to kill it.
func (s *supervisor) lost() <-chan time.Time {
	s.code = s.lossCode()
	if s.onLost == 0 {
		s.say("%v; COMMAND goes on", s.lease.Err())
		return nil
	}
	s.say("%v; sending %s", s.lease.Err(), signalName(s.onLost))
	kill := s.killIn(s.killAfter)
	s.child.signal(s.onLost)
	return kill
}

// killIn tells the guard, and the caller, when to kill what still runs.
func (s *supervisor) killIn(grace time.Duration) <-chan time.Time {
	s.guard.send(order{Kill: bootClock() + grace})
	return time.After(grace)
}

// revoked passes the request to COMMAND.
func (s *supervisor) revoked(r recipe.Revocation) {
	s.askedBack(describe(s.Args), r)
	if s.onRevoke != 0 {
		s.code = exitRevoked
		s.child.signal(s.onRevoke)
	}
}
