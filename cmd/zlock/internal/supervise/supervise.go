//go:build !windows

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Right is the right of COMMAND to run, such as a lock.
type Right struct {
	Lost  <-chan struct{}  // closed when the right is lost
	Err   func() error     // why the right has ended; nil while it lasts
	Until func() time.Time // returns when the right ends unless it is renewed
	Code  func() int       // the exit code if the right is lost
	Asked <-chan string    // messages of processes that ask for the right
	// AskedCode is the exit code if COMMAND ends after a message in Asked.
	AskedCode int
}

// Command is what runs under the right.
type Command struct {
	Path       string
	Argv, Env  []string
	Foreground bool // run COMMAND in this process's group, so that it can use the terminal
	Contain    bool // run COMMAND in a process namespace
	Leave      bool // processes that COMMAND leaves behind may continue
	Loss
	Say func(string, ...any)
}

// Outcome says how COMMAND ended.
type Outcome struct {
	Code   int            // COMMAND's exit code
	Right  int            // if COMMAND lost its right to run: the exit code for that; 0: it did not
	Told   bool           // the user told COMMAND to end
	Signal syscall.Signal // the signal that ended COMMAND; 0: none
}

// supervisor supervises COMMAND from its start to the end of all its processes.
type supervisor struct {
	*Command
	right   Right
	guard   *Guard
	child   *child
	started time.Time // when COMMAND started
	code    int       // exit code if COMMAND lost its right to run; 0: it did not
	told    bool      // the user told COMMAND to end
	asked   bool      // zlock has got TERM
}

// Run makes the guard start COMMAND, and passes on to COMMAND the signals that arrive in `sigs`. When Run
// returns, no process of COMMAND is left, and the caller may give up the right.
func (g *Guard) Run(r Right, c *Command, sigs chan os.Signal) (Outcome, error) {
	defer signal.Stop(sigs)
	s := &supervisor{Command: c, right: r, guard: g}
	child, err := g.start(newLaunch(c), s.deadline())
	if err != nil {
		return Outcome{}, err
	}
	s.child, s.started = child, time.Now()
	s.watch(sigs)
	if child.alive() {
		grace := s.KillAfter
		if s.asked {
			grace = s.Grace()
		}
		g.send(order{Kill: BootClock() + grace}) // in case zlock is stopped; finish() sends the first signal
		child.finish(grace, s.Say)
	}
	// Look once more for a signal that asks COMMAND to end: it may have ended COMMAND before zlock noticed it.
	signal.Stop(sigs)
	for len(sigs) > 0 {
		s.told = tellsToEnd(<-sigs) || s.told
	}
	out := Outcome{Code: child.code(), Right: s.code, Told: s.told}
	if child.status.Signaled() {
		out.Signal = child.status.Signal()
	}
	return out, nil
}

// deadline() returns when the right ends, on the clock that zlock and the guard share.
func (s *supervisor) deadline() time.Duration {
	return BootClock() + time.Until(s.right.Until())
}

// watch() handles signals, loss and requests until COMMAND exits.
func (s *supervisor) watch(sigs <-chan os.Signal) {
	lost, asked := s.right.Lost, s.right.Asked
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var kill <-chan time.Time
	for {
		select {
		case n := <-s.child.news:
			switch {
			case n.Ended:
				// The right was lost before COMMAND ended, so that counts as the reason. But s.code may already be set,
				// by a request for the right: then that is the reason.
				if s.code == 0 && s.right.Err() != nil {
					s.code = s.right.Code()
				}
				return
			case n.Signal != 0 && !s.told: // a process sent it to the guard, so COMMAND has not got it yet
				s.pass(n.Signal)
			case n.Bereft && s.OnLost == 0:
				s.Say("the guard process died; COMMAND continues without a guard, and COMMAND's exit code " +
					"is not known")
			case n.Bereft:
				s.Say("the guard process died, and COMMAND with it")
				s.child.signal(syscall.SIGKILL)
			}
		case sig := <-sigs:
			s.forward(sig.(syscall.Signal))
			s.asked = s.asked || sig == syscall.SIGTERM
			// TERM and then CONT come from an outer zlock that ends its COMMAND: only then this COMMAND must end in
			// time. A TERM of the user, passed on by an outer zlock, comes without CONT.
			if sig == syscall.SIGCONT && s.asked && s.Nested > 0 && kill == nil {
				kill = s.killIn(s.Grace())
			}
		case <-lost:
			lost = nil
			if k := s.lost(); kill == nil {
				kill = k
			}
		case text := <-asked:
			asked = nil
			s.askedBack(text)
		case <-kill:
			s.child.signal(syscall.SIGKILL)
			kill = time.After(100 * time.Millisecond) // again, as a process may have forked just before the KILL
		case <-tick.C:
			if lost != nil {
				s.guard.tell(s.deadline().Truncate(10 * time.Millisecond))
			}
		}
	}
}

// askedBack tells COMMAND that another client asks for the right.
func (s *supervisor) askedBack(text string) {
	s.Say("%s", text)
	if s.OnAsked != 0 {
		s.code = s.right.AskedCode
		s.child.signal(s.OnAsked)
	}
}
