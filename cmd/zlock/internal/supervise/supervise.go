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
	OnLost    syscall.Signal // first signal on loss; 0: only a warning
	KillAfter time.Duration
	OnAsked   syscall.Signal // on a request to give the right back; 0: nothing
	Nested    time.Duration  // KillAfter when an outer zlock ends COMMAND; 0: there is none
}

// Grace is how long a COMMAND has at the least after a signal that ends it.
func (l Loss) Grace() time.Duration {
	if l.Nested > 0 {
		return min(l.Nested, l.KillAfter)
	}
	return l.KillAfter
}

// GraceWithin returns how long COMMAND has if this zlock runs under the lock of another one, which gives its
// own COMMAND so long: less, so that this zlock gives back its lock before the other one kills it.
func GraceWithin(outer string) time.Duration {
	d, err := time.ParseDuration(outer)
	if err != nil {
		return 0
	}
	return max(d-time.Second, d/2)
}

// Right is what COMMAND may run under.
type Right struct {
	Lost  <-chan struct{}  // closed when it is lost
	Err   func() error     // why it is over, nil while it lasts
	Until func() time.Time // when it ends if nothing prolongs it
	Code  func() int       // the exit code that tells of its loss
	Asked <-chan string    // says that another process asks for it
	// AskedCode is the exit code when COMMAND was ended because of that.
	AskedCode int
}

// Command is what runs under the right.
type Command struct {
	Path       string
	Argv, Env  []string
	Foreground bool // in this process's group, as a terminal needs it
	Contain    bool // in a process namespace
	Leave      bool // what leaves COMMAND may go on
	Loss
	Say func(string, ...any)
}

// Outcome tells how COMMAND ended.
type Outcome struct {
	Code   int            // COMMAND's exit code
	Right  int            // the exit code that says what became of the right, 0 if nothing did
	Told   bool           // the user told COMMAND to end
	Signal syscall.Signal // that ended COMMAND, 0 if none did
}

// supervisor stays with COMMAND from its start to the end of all that it started.
type supervisor struct {
	*Command
	right   Right
	guard   *Guard
	child   *child
	started time.Time // when COMMAND started
	code    int       // what became of the right
	told    bool      // the user told COMMAND to end
	asked   bool      // a process sent TERM
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

// ListenForCommand starts to receive the signals for COMMAND.
func ListenForCommand() chan os.Signal {
	return Listen(slices.Concat(terminalSignals, forwardedSignals)...)
}

// Run makes the guard start COMMAND, and passes on the signals that sigs receives. When Run returns, no
// process of COMMAND is left, and the right may be given away.
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
		g.send(order{Kill: BootClock() + grace}) // zlock sends the signal itself
		child.finish(grace, s.Say)
	}
	// A signal that tells to end counts, also if zlock notices it after COMMAND's end.
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
				// A COMMAND that exits after a request for the right was stopped by it, and a right lost in the
				// last instant was lost while COMMAND ran.
				if s.code == 0 && s.right.Err() != nil {
					s.code = s.right.Code()
				}
				return
			case n.Signal != 0 && !s.told: // no terminal sends to the guard
				s.pass(n.Signal)
			case n.Bereft && s.OnLost == 0:
				s.Say("the guard process died; COMMAND goes on without one, and its exit code is not known")
			case n.Bereft:
				s.Say("the guard process died, and COMMAND with it")
				s.child.signal(syscall.SIGKILL)
			}
		case sig := <-sigs:
			s.forward(sig.(syscall.Signal))
			s.asked = s.asked || sig == syscall.SIGTERM
			// An outer zlock that ends its COMMAND sends CONT after its signal. One that passes on a signal of
			// the user does not, and then COMMAND may take its time.
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
	if s.Foreground && time.Since(s.started) > earlySignal && slices.Contains(terminalSignals, os.Signal(sig)) {
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
	case !s.Foreground:
		pids[0] = -pids[0]
	case s.Contain && slices.Contains(terminalSignals, os.Signal(sig)):
		pids = ChildrenOf(s.child.pid) // the keeper does not pass on what a terminal sends
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// lost signals COMMAND, and returns when to kill it.
func (s *supervisor) lost() <-chan time.Time {
	s.code = s.right.Code()
	if s.OnLost == 0 {
		s.Say("%v; COMMAND goes on", s.right.Err())
		return nil
	}
	s.Say("%v; sending %s", s.right.Err(), SignalName(s.OnLost))
	kill := s.killIn(s.KillAfter)
	s.child.signal(s.OnLost)
	return kill
}

// killIn tells the guard, and the caller, when to kill what still runs.
func (s *supervisor) killIn(grace time.Duration) <-chan time.Time {
	s.guard.send(order{Kill: BootClock() + grace})
	return time.After(grace)
}

// askedBack passes the request to COMMAND.
func (s *supervisor) askedBack(text string) {
	s.Say("%s", text)
	if s.OnAsked != 0 {
		s.code = s.right.AskedCode
		s.child.signal(s.OnAsked)
	}
}
