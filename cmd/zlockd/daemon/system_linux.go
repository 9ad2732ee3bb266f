package daemon

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	usualSlack  = 50_000    // ns: the default of Linux
	serverSlack = 1_000_000 // ns
	// The environment variable `relaxed` is set in a program that relaxTimers has executed.
	relaxed = "_ZLOCKD_TIMERS_RELAXED"
)

// relaxTimers lets the sleeps of a server's threads end up to a millisecond late. Go's monitor thread asks
// for sleeps of 20 µs as long as any goroutine runs, and that took a third of the processor time of a
// replicated write (decision 16). Threads inherit the slack, and the monitor starts before main, so the
// program executes itself again. A slack that the operator has chosen is kept. If anything fails, the server
// runs without more slack.
func relaxTimers(args []string) {
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		return // a command, which ends soon
	}
	if os.Getenv(relaxed) != "" {
		_ = os.Unsetenv(relaxed)
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != usualSlack ||
		unix.Prctl(unix.PR_SET_TIMERSLACK, serverSlack, 0, 0, 0) != nil {
		return
	}
	_ = unix.Exec(self, args, append(os.Environ(), relaxed+"=1"))
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
}

// monotonic returns the time of the system's monotonic clock.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has this clock
	return time.Duration(t.Nano())
}
