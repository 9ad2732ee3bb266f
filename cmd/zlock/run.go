package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// runFlags are the options of the commands that run a COMMAND.
type runFlags struct {
	shell      string
	onLost     string
	onRevoke   string
	foreground bool
	contain    bool
	inherit    bool
	readyFD    int
	fs         *pflag.FlagSet
}

func addRunFlags(fs *pflag.FlagSet, killAfter *time.Duration) *runFlags {
	f := &runFlags{fs: fs, onLost: "term", readyFD: -1}
	fs.StringVarP(&f.shell, "command", "c", "", "run `STRING` by /bin/sh instead of a COMMAND")
	fs.StringVar(&f.onLost, "on-lost", "term", "on loss: term, kill, another `SIGNAL`, or warn to let COMMAND go on")
	addDuration(fs, killAfter, "kill-after", "k", "time between the signal and KILL")
	fs.StringVar(&f.onRevoke, "on-revoke", "", "`SIGNAL` to send when the lock is asked back (default TERM with --revocable, else none)")
	fs.BoolVar(&f.foreground, "foreground", false, "keep COMMAND in zlock's process group, as a terminal needs it (default if standard input is a terminal)")
	fs.BoolVar(&f.contain, "contain", false, "run COMMAND in a process namespace, so that nothing it starts can outlive it (Linux)")
	fs.IntVar(&f.readyFD, "ready-fd", -1, "write a line 'locked TOKEN' to this file descriptor `FD` when the lock is held")
	return f
}

// loss makes what happens on loss of the flags.
func (f *runFlags) loss(killAfter time.Duration, revocable bool) (lossFlags, error) {
	l := lossFlags{killAfter: killAfter}
	var err error
	switch f.onLost {
	case "warn":
	default:
		if l.onLost, err = parseSignal(f.onLost); err != nil {
			return l, usagef("--on-lost: %v", err)
		}
	}
	switch {
	case f.onRevoke != "":
		if l.onRevoke, err = parseSignal(f.onRevoke); err != nil {
			return l, usagef("--on-revoke: %v", err)
		}
	case revocable:
		l.onRevoke = syscall.SIGTERM
	}
	if f.contain && !canContain {
		return l, usagef("--contain: this system has no namespaces of processes")
	}
	if f.readyFD >= 0 {
		if _, err := unix.FcntlInt(uintptr(f.readyFD), unix.F_GETFD, 0); err != nil {
			return l, usagef("--ready-fd %d is not open", f.readyFD)
		}
		// Neither COMMAND nor the guard shall keep it open.
		if f.readyFD > 2 {
			unix.CloseOnExec(f.readyFD)
		}
	}
	return l, nil
}

func (f *runFlags) inForeground(a *app) bool {
	if f.fs.Changed("foreground") {
		return f.foreground
	}
	return isTerminal(a.stdin)
}

func (f *runFlags) ready(line string) error {
	if f.readyFD < 0 {
		return nil
	}
	return passFD(f.readyFD, line)
}

func runCommand() *command {
	return &command{
		name: "run", args: "PATH… -- COMMAND [ARG…]", paths: true,
		does: "run a command while holding a lock",
		help: `Several PATHs are locked at once, without the danger of a deadlock. COMMAND is
executed directly; -c takes a line for the shell. When the lock is lost, COMMAND
and all it started in its process group are ended before another can get the
lock; when COMMAND ends, what it left running is ended before the lock is
released. COMMAND finds the lock described in ZLOCK_PATH, ZLOCK_TOKEN and others.

Exit code: COMMAND's, 128+N if it died of signal N, 120 no session, 121 revoked,
122 lock lost, 123 held too long (--max-hold), 124 not acquired (-n, -w), 125
usage or internal error, 126 COMMAND not executable, 127 COMMAND not found.`,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			lock := addLockFlags(fs)
			run := addRunFlags(fs, &lock.killAfter)
			fs.BoolVar(&run.inherit, "inherit", false, "if an ancestor of this process holds PATH, run COMMAND under its lock")
			conn := addConnectFlags(fs)
			return func(c *call) error { return c.run(lock, run, conn) }
		},
	}
}

func (c *call) run(lock *lockFlags, run *runFlags, conn *connectFlags) error {
	if len(c.args) == 0 {
		return usagef("no PATH")
	}
	if err := lock.check(); err != nil {
		return err
	}
	loss, err := run.loss(lock.killAfter, lock.isRevocable())
	if err != nil {
		return err
	}
	exe, err := findExecutable(c.dashed, run.shell)
	if err != nil {
		return err
	}
	if loss.onLost != 0 {
		conn.margin = marginFor(lock.killAfter)
		if err := checkMargin(true, conn.sessionTimeout, lock.killAfter); err != nil {
			return err
		}
	}
	servers, chroot, err := conn.address(c.getenv)
	if err != nil {
		return err
	}

	ctx, stop := interruptible()
	defer stop()
	cl, err := c.connect(ctx, conn)
	if err != nil {
		return asExit(err)
	}
	defer c.disconnect(cl)
	if loss.onLost != 0 {
		if err := checkMargin(false, cl.Session().Timeout, lock.killAfter); err != nil {
			return err
		}
	}
	if got, err := c.inherited(ctx, cl, chroot, c.args, run.inherit); err != nil {
		return asExit(err)
	} else if got != nil {
		if err := run.ready("locked " + got[0].seq.Token.String()); err != nil {
			return err
		}
		c.disconnect(cl)
		err := syscall.Exec(exe.path, exe.argv, os.Environ())
		return exitf(exitNotExec, "%s: %w", exe.path, err)
	}

	task := taskOf(c.getenv)
	lease, err := lock.acquire(ctx, cl, task, c.args)
	if err != nil {
		return asExit(err)
	}
	sigs := listenForCommand() // from here on they are COMMAND's
	stop()
	if err := interrupted(ctx); err != nil { // asked to end before that
		sigs.stop()
		c.giveBack(lease.Unlock)
		return asExit(err)
	}
	locks := heldOf(lease)
	s := &supervisor{app: c.app, lossFlags: loss, lease: lease, foreground: run.inForeground(c.app), contained: run.contain, what: lock.describe(c.args)}
	if lock.maxHold > 0 {
		s.limit = bootClock() + lock.maxHold
	}
	code, err := s.run(sigs, exe.path, exe.argv, environ(os.Environ(), servers, chroot, task, locks, c.getenv), func() error {
		return run.ready("locked " + locks[0].seq.Token.String())
	})
	code = s.release(code)
	if err != nil {
		return err
	}
	return exit(code)
}

// giveBack unlocks without caring for the outcome: the session ends next.
func (c *call) giveBack(unlock func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := unlock(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.say("%v", err)
	}
}
