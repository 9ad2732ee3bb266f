package main

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// With --contain COMMAND runs in a process namespace of its own. Its first process,
// the keeper, is this program; when the keeper is gone, the kernel kills what is left
// in the namespace, whatever sessions or groups it has moved to. The keeper reads the
// pipe by which zlock lets COMMAND begin and which is open as long as zlock lives, so
// that COMMAND ends with its lock even if zlock and the guard are killed together.

// keeperArgs are those of a keeper that gets its orders from a file descriptor.
func keeperArgs(fd int, onLost syscall.Signal, killAfter time.Duration, foreground bool, path string, argv []string) []string {
	return append([]string{"zlock", "__keep", strconv.Itoa(fd), strconv.Itoa(int(onLost)), killAfter.String(), strconv.FormatBool(foreground), path}, argv...)
}

func keepCommand() *command {
	return &command{
		name: "__keep", args: "FD SIGNAL KILL-AFTER FOREGROUND FILE ARGV…", does: "be the first process of a namespace", hidden: true,
		setup: func(flags *pflag.FlagSet) func(*call) error {
			flags.SetInterspersed(false)
			return func(c *call) error {
				if len(c.args) < 6 || os.Getpid() != 1 {
					return usagef("not for use by hand")
				}
				fd, err1 := strconv.Atoi(c.args[0])
				sig, err2 := strconv.Atoi(c.args[1])
				killAfter, err3 := time.ParseDuration(c.args[2])
				if err := errors.Join(err1, err2, err3); err != nil {
					return err
				}
				k := keeper{leash: os.NewFile(uintptr(fd), "leash"), onLost: syscall.Signal(sig), killAfter: killAfter, foreground: c.args[3] == "true"}
				return k.keep(c.args[4], c.args[5:])
			}
		},
	}
}

// keeper is the first process of COMMAND's namespace.
type keeper struct {
	leash      *os.File // a byte lets COMMAND begin, its end means that zlock is dead
	onLost     syscall.Signal
	killAfter  time.Duration
	foreground bool
}

// keep runs COMMAND and returns, as an exit code, how it ended, when nothing of the
// namespace is left but what the kernel kills with this process.
func (k *keeper) keep(path string, argv []string) error {
	syscall.CloseOnExec(int(k.leash.Fd()))
	// What is for COMMAND must not end its keeper. What the user ignores stays
	// ignored for COMMAND.
	passed := make(chan os.Signal, 64)
	for _, s := range slices.Concat(terminalSignals, forwardedSignals, []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}) {
		if !signal.Ignored(s) {
			signal.Notify(passed, s)
		}
	}
	var b [1]byte
	if n, _ := k.leash.Read(b[:]); n != 1 {
		return exit(exitFailed) // zlock gave up before it began
	}
	main, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exitf(exitNotFound, "%s: %w", path, err)
	case err != nil:
		return exitf(exitNotExec, "%s: %w", path, err)
	}
	go func() {
		for s := range passed {
			// In a group of its own COMMAND gets the signal without us.
			if k.foreground && slices.Contains(forwardedSignals, s) {
				_ = syscall.Kill(main, s.(syscall.Signal))
			}
		}
	}()
	go func() {
		_, _ = k.leash.Read(b[:])
		if k.onLost != 0 {
			everybody(k.onLost)
			time.AfterFunc(k.killAfter, func() { os.Exit(exitLost) })
		}
	}()
	code := 0
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return exit(code) // nobody is left
		case pid == main:
			if code = st.ExitStatus(); st.Signaled() {
				code = signalCode(st.Signal())
			}
			last := code
			everybody(syscall.SIGTERM)
			time.AfterFunc(k.killAfter, func() { os.Exit(last) })
		}
	}
}

// everybody sends a signal to all of the namespace but its first process.
func everybody(sig syscall.Signal) {
	_ = syscall.Kill(-1, sig)
	_ = syscall.Kill(-1, syscall.SIGCONT)
}
