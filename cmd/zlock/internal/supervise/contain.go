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

// With --contain, COMMAND runs in a process namespace of its own. The keeper is the first process of this
// namespace; it runs this program. When the keeper ends, the kernel kills all other processes of the
// namespace, in whatever session or group they are.

// keeperArgs returns the keeper's arguments.
func keeperArgs(l *launch, path string, argv []string) []string {
	return append([]string{"zlock", "__keep", l.KillAfter.String(), strconv.FormatBool(l.Group != 0),
		strconv.FormatBool(l.OnLost != 0), path}, argv...)
}

// Keep is the code of the keeper. It runs COMMAND, and waits until no process of the namespace is left, but
// not longer than killAfter after COMMAND's end: then the kernel kills the rest. It ends with COMMAND's exit
// code. If `die` is true, the keeper dies with the guard.
func Keep(killAfter time.Duration, foreground, die bool, path string, argv []string) error {
	if die {
		dieWithGuard()
	}
	// Receive signals that are meant for COMMAND, so that they do not end the keeper. Leave signals ignored that
	// zlock ignores: COMMAND must ignore them, too.
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
			// In the foreground these signals reach only the keeper. In a group of its own COMMAND has got them.
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
				_ = syscall.Kill(-1, sig) // -1: all processes of the namespace but this one
			}
			time.AfterFunc(killAfter, func() { os.Exit(last) })
		}
	}
}
