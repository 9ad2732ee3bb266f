package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func init() {
	if os.Getenv("TEST_ZLOCKD_TIMERS") == "" {
		return
	}
	relaxTimers(os.Args)
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	_, marked := os.LookupEnv(relaxed)
	fmt.Print(slack, err, marked, os.Args[1:])
	os.Exit(0)
}

// A server executes itself again once, with relaxed timers and the same arguments. A command does not. A
// server whose operator has chosen a slack does not either.
func TestRelaxTimers(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		slack      uintptr
		args, want string
	}{
		{usualSlack, "--id 1", "1000000 <nil> false [--id 1]"},
		{usualSlack, "", "1000000 <nil> false []"},
		{usualSlack, "version", "50000 <nil> false [version]"},
		{70_000, "--id 1", "70000 <nil> false [--id 1]"},
	} {
		// A new process inherits the timer slack of the thread that starts it, so the test sets it here.
		slack := must.Get(unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0))(t)
		must.OK(t, unix.Prctl(unix.PR_SET_TIMERSLACK, c.slack, 0, 0, 0))
		cmd := exec.Command(os.Args[0], strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "TEST_ZLOCKD_TIMERS=1")
		out, err := cmd.Output()
		must.OK(t, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0))
		must.OK(t, err)
		expect.Equal(t, string(out), c.want, c.args)
	}
}
