//go:build !windows

package supervise

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SignalName returns the name without SIG, as for kill(1).
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(sig))
}

// In the foreground the terminal sends its signals to COMMAND itself, except those from before COMMAND joined
// the group: only zlock gets these, perhaps late. So zlock still passes such signals on for the time
// earlySignal after COMMAND's start. COMMAND may get one twice, but misses none.
const earlySignal = 500 * time.Millisecond

// The signals that zlock passes on to COMMAND. In the foreground the terminal itself sends the
// terminalSignals to COMMAND.
var (
	terminalSignals  = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}
	forwardedSignals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGCONT}
)

// ListenForCommand starts to receive the signals for COMMAND.
func ListenForCommand() chan os.Signal {
	return Listen(slices.Concat(terminalSignals, forwardedSignals)...)
}

// forward() passes a signal on to COMMAND, unless it came from a terminal that has sent it to COMMAND, too.
func (s *supervisor) forward(sig syscall.Signal) {
	if s.Foreground && time.Since(s.started) > earlySignal && slices.Contains(terminalSignals, os.Signal(sig)) {
		s.told = s.told || tellsToEnd(sig)
		return
	}
	s.pass(sig)
}

// pass() sends a signal to COMMAND, and records whether the signal asks COMMAND to end.
func (s *supervisor) pass(sig syscall.Signal) {
	s.told = s.told || tellsToEnd(sig)
	pids := []int{s.child.pid}
	switch {
	case !s.Foreground:
		pids[0] = -pids[0]
	case s.Contain && slices.Contains(terminalSignals, os.Signal(sig)):
		pids = ChildrenOf(s.child.pid) // COMMAND itself: the keeper passes on other signals, but not these
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}
