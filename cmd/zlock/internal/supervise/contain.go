//go:build !windows

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// With --contain COMMAND runs in a process namespace of its own. The first process of the namespace, the
// keeper, is this program. When the keeper ends, the kernel kills all other processes of the namespace,
// whatever their session or group.

// keeperArgs returns the keeper's arguments.
func keeperArgs(l *launch, path string, argv []string) []string {
	return append([]string{"zlock", "__keep", l.KillAfter.String(), strconv.FormatBool(l.Group != 0),
		strconv.FormatBool(l.OnLost != 0), path}, argv...)
}

// Keep is the code of the keeper. It runs COMMAND and returns its exit code when no process of the namespace
// is left. If the time `killAfter` has passed since COMMAND's end, the keeper exits in any case, and the
// kernel kills the remaining processes. If `die` is true, the keeper ends when the guard ends.
func Keep(killAfter time.Duration, foreground, die bool, path string, argv []string) error {
	if die {
		dieWithGuard()
	}
	// Signals for COMMAND must not end its keeper. COMMAND ignores the signals that the user has made zlock
	// ignore.
	passed := make(chan os.Signal, 64)
	for _, s := range slices.Concat(terminalSignals, forwardedSignals, []os.Signal{
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}) {
		if !signal.Ignored(s) {
			signal.Notify(passed, s)
		}
	}
	main, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return cli.Exitf(NotStarted(err), "%s: %w", path, err)
	}
	go func() {
		for s := range passed {
			// COMMAND gets the signal directly if COMMAND has a group of its own.
			if foreground && slices.Contains(forwardedSignals, s) {
				_ = syscall.Kill(main, s.(syscall.Signal))
			}
		}
	}()
	code := 0
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return cli.Exit(code) // no process is left
		case pid == main:
			if code = st.ExitStatus(); st.Signaled() {
				code = SignalCode(st.Signal())
			}
			last := code
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
				_ = syscall.Kill(-1, sig) // every process of the namespace except this one
			}
			time.AfterFunc(killAfter, func() { os.Exit(last) })
		}
	}
}
