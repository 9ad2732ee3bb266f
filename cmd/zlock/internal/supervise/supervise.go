//go:build !windows

package supervise

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Loss says what happens to COMMAND when its right is lost.
type Loss struct {
	OnLost    syscall.Signal // the first signal on loss; 0: only a warning
	KillAfter time.Duration
	OnAsked   syscall.Signal // signal for COMMAND when another client asks for the right back; 0: none
	Nested    time.Duration  // KillAfter when an outer zlock ends COMMAND; 0: no outer zlock
}

// Grace returns the shortest time that COMMAND gets between the signal to end and SIGKILL.
func (l Loss) Grace() time.Duration {
	if l.Nested > 0 {
		return min(l.Nested, l.KillAfter)
	}
	return l.KillAfter
}

// GraceWithin returns the grace of COMMAND if this zlock runs under the lock of an outer zlock whose grace is
// `outer`. The result is shorter than `outer`, so that this zlock releases its lock before the outer zlock
// kills it.
func GraceWithin(outer string) time.Duration {
	d, err := time.ParseDuration(outer)
	if err != nil {
		return 0
	}
	return max(d-time.Second, d/2)
}

// Right is the right under which COMMAND runs.
type Right struct {
	Lost  <-chan struct{}  // closed when the right is lost
	Err   func() error     // why the right has ended; nil while it lasts
	Until func() time.Time // returns when the right ends unless it is renewed
	Code  func() int       // the exit code if the right is lost
	Asked <-chan string    // messages of processes that ask for the right
	// AskedCode is the exit code if COMMAND ends because of Asked.
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
	Right  int            // the exit code for the end of the right; 0: it did not end
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
	code    int       // exit code for the end of the right
	told    bool      // the user told COMMAND to end
	asked   bool      // a process has sent TERM to zlock
}

// earlySignal is how long after COMMAND's start zlock still passes on a terminal's signals in the foreground.
// After that time the terminal sends them to COMMAND itself. A signal that was sent before COMMAND joined the
// group reaches only zlock, perhaps with a delay. Within earlySignal a signal may reach COMMAND twice;
// without it a signal could miss COMMAND.
const earlySignal = 500 * time.Millisecond

// zlock passes these signals on to COMMAND. In the foreground the terminal sends the terminalSignals to
// COMMAND itself.
var (
	terminalSignals  = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}
	forwardedSignals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGCONT}
)

// ListenForCommand starts to receive the signals for COMMAND.
func ListenForCommand() chan os.Signal {
	return Listen(slices.Concat(terminalSignals, forwardedSignals)...)
}

// Run makes the guard start COMMAND, and passes on the signals of sigs. When Run returns, no process of
// COMMAND is left, and the caller may give up the right.
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
		g.send(order{Kill: BootClock() + grace}) // zlock itself sends the first signal
		child.finish(grace, s.Say)
	}
	// A signal that asks COMMAND to end counts even if zlock notices it after COMMAND's end.
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

// deadline returns when the right ends, on the clock shared with the guard.
func (s *supervisor) deadline() time.Duration {
	return BootClock() + time.Until(s.right.Until())
}

// watch handles signals, loss and requests until COMMAND exits.
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
				// If COMMAND exits after a request for the right, assume that the request ended it. If the right is lost
				// by now, it was lost while COMMAND ran.
				if s.code == 0 && s.right.Err() != nil {
					s.code = s.right.Code()
				}
				return
			case n.Signal != 0 && !s.told: // no terminal sends signals to the guard
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
			// An outer zlock that ends its COMMAND sends CONT after its signal. If it only passes on the user's
			// signal, it sends no CONT, and this COMMAND has no time limit.
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
			kill = time.After(100 * time.Millisecond) // repeat it for processes that were forked before the KILL
		case <-tick.C:
			if lost != nil {
				s.guard.tell(s.deadline().Truncate(10 * time.Millisecond))
			}
		}
	}
}

// forward passes a signal on to COMMAND, unless a terminal has sent the signal to both zlock and COMMAND.
func (s *supervisor) forward(sig syscall.Signal) {
	if s.Foreground && time.Since(s.started) > earlySignal && slices.Contains(terminalSignals, os.Signal(sig)) {
		s.told = s.told || tellsToEnd(sig)
		return
	}
	s.pass(sig)
}

// pass sends a signal to COMMAND, and records whether the signal asks COMMAND to end.
func (s *supervisor) pass(sig syscall.Signal) {
	s.told = s.told || tellsToEnd(sig)
	pids := []int{s.child.pid}
	switch {
	case !s.Foreground:
		pids[0] = -pids[0]
	case s.Contain && slices.Contains(terminalSignals, os.Signal(sig)):
		pids = ChildrenOf(s.child.pid) // the keeper does not pass on a terminal's signals
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// lost() sends COMMAND the signal for a loss, and returns a channel that fires when COMMAND must be killed.
func (s *supervisor) lost() <-chan time.Time {
	s.code = s.right.Code()
	if s.OnLost == 0 {
		s.Say("%v; COMMAND continues", s.right.Err())
		return nil
	}
	s.Say("%v; sending %s", s.right.Err(), SignalName(s.OnLost))
	kill := s.killIn(s.KillAfter)
	s.child.signal(s.OnLost)
	return kill
}

// killIn sends the guard the time of the KILL, and returns a channel that fires at that time.
func (s *supervisor) killIn(grace time.Duration) <-chan time.Time {
	s.guard.send(order{Kill: BootClock() + grace})
	return time.After(grace)
}

// askedBack tells COMMAND that another client asks for the right.
func (s *supervisor) askedBack(text string) {
	s.Say("%s", text)
	if s.OnAsked != 0 {
		s.code = s.right.AskedCode
		s.child.signal(s.OnAsked)
	}
}
