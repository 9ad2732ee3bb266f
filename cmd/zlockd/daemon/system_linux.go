package daemon

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	usualSlack  = 50_000    // ns; Linux's default
	serverSlack = 1_000_000 // ns
	// relaxTimers sets this environment variable when it executes the program again, so that it does so only
	// once.
	relaxed = "_ZLOCKD_TIMERS_RELAXED"
)

// relaxTimers lets a server's threads sleep up to a millisecond longer than they ask for. While any goroutine
// runs, a thread of Go's runtime sleeps for 20 µs again and again. That took a third of the processor time of
// a replicated write (decision 16). The thread starts before main and inherits its slack, so relaxTimers
// executes the program again. A slack that the operator has chosen stays. If anything fails, the slack stays
// as it is.
func relaxTimers(args []string) {
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		return // a command such as check or import, which ends soon: not a server
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
