//go:build !windows

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
)

// runFlags are the options of the commands that run a COMMAND.
type runFlags struct {
	shell      string
	onLost     string
	onRevoke   string
	foreground bool
	contain    bool
	leave      bool
	inherit    bool
	readyFD    int
	fs         *pflag.FlagSet
}

func addRunFlags(fs *pflag.FlagSet, killAfter *time.Duration) *runFlags {
	f := &runFlags{fs: fs, onLost: "term", readyFD: -1}
	fs.StringVarP(&f.shell, "command", "c", "", "run `STRING` by /bin/sh instead of a COMMAND")
	fs.StringVar(&f.onLost, "on-lost", "term",
		"on loss: term, kill, another `SIGNAL`, or warn to let COMMAND continue")
	call.AddDuration(fs, killAfter, "kill-after", "k", "time between the signal and KILL")
	fs.StringVar(&f.onRevoke, "on-revoke", "",
		"`SIGNAL` to send when the lock is asked back (default TERM with --revocable, else none)")
	fs.BoolVar(&f.foreground, "foreground", false,
		"keep COMMAND in zlock's process group, so that it can use the terminal (default if standard "+
			"input is a terminal)")
	fs.BoolVar(&f.contain, "contain", false,
		"run COMMAND in a PID namespace, so that nothing it starts can outlive it (Linux)")
	fs.BoolVar(&f.leave, "leave", false,
		"do not end processes that leave COMMAND's process group, such as a daemon that it starts on purpose")
	fs.IntVar(&f.readyFD, "ready-fd", -1,
		"write a line 'locked TOKEN' to this file descriptor `FD` when the lock is held")
	return f
}

// loss() returns what the flags say about a loss of the lock: which signals COMMAND gets, and when.
func (f *runFlags) loss(killAfter time.Duration, revocable bool) (supervise.Loss, error) {
	l := supervise.Loss{KillAfter: killAfter}
	var err error
	switch f.onLost {
	case "warn":
	default:
		if l.OnLost, err = parseSignal(f.onLost); err != nil {
			return l, cli.Usagef("--on-lost: %v", err)
		}
	}
	switch {
	case f.onRevoke != "":
		if l.OnAsked, err = parseSignal(f.onRevoke); err != nil {
			return l, cli.Usagef("--on-revoke: %v", err)
		}
	case revocable:
		l.OnAsked = syscall.SIGTERM
	}
	if f.contain && f.leave {
		return l, cli.Usagef("--contain and --leave exclude each other")
	}
	if f.contain && !supervise.CanContain {
		return l, cli.Usagef("--contain: this system has no PID namespaces")
	}
	if f.readyFD >= 0 {
		if _, err := unix.FcntlInt(uintptr(f.readyFD), unix.F_GETFD, 0); err != nil {
			return l, cli.Usagef("--ready-fd %d is not open", f.readyFD)
		}
		// Only zlock writes to the descriptor of --ready-fd, so COMMAND and the guard must not inherit it.
		if f.readyFD > 2 {
			unix.CloseOnExec(f.readyFD)
		}
	}
	return l, nil
}

func (f *runFlags) inForeground(a *call.App) bool {
	if f.fs.Changed("foreground") {
		return f.foreground
	}
	return call.IsTerminal(a.Stdin)
}

// ready() writes a line to the descriptor that --ready-fd names, and closes the descriptor. The reader then
// sees the end of the file.
func (f *runFlags) ready(line string) error {
	if f.readyFD < 0 {
		return nil
	}
	file := os.NewFile(uintptr(f.readyFD), "ready")
	_, err := file.WriteString(line + "\n")
	if f.readyFD > 2 {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("--ready-fd: %w", err)
	}
	return nil
}

// Run is zlock run.
func Run() *call.Command {
	return &call.Command{
		Name: "run", Args: "PATH… -- COMMAND [ARG…]", Paths: true, Least: 0, Most: -1, Runs: true,
		Does: "run a command while holding a lock",
		Help: `Locks several PATHs at once, without the danger of a deadlock. Executes COMMAND
directly; -c takes a line for the shell. When the lock is lost, zlock ends COMMAND
and all processes that it started before another client can get the lock. When
COMMAND ends, zlock ends the processes that it left running, and then releases the
lock. (On systems other than Linux, and with --leave, this covers only COMMAND's
process group.) ZLOCK_PATH, ZLOCK_TOKEN and others describe the lock to COMMAND.

With --ticket-file, COMMAND runs under the hold of a ticket ('zlock take'). zlock
renews the ticket until COMMAND ends; then the ticket stays (--give gives it back).
With --rate 100/1m, COMMAND runs without a lock, as soon as PATH has had fewer than
100 draws within 1m. Both ask a zlockd's port for tickets (--http), and need no
other connection.

Exit code: COMMAND's, 128+N if signal N ended it, 120 no session, 121 revoked,
122 lock lost, 123 held too long (--max-hold), 124 not acquired (-n, -w), 125
usage or internal error, 126 COMMAND not executable, 127 COMMAND not found.`,
		Setup: func(fs *pflag.FlagSet) func(*call.Call) error {
			lock := addLockFlags(fs)
			run := addRunFlags(fs, &lock.killAfter)
			fs.BoolVar(&run.inherit, "inherit", false,
				"if an ancestor of this process holds PATH, run COMMAND under its lock")
			conn := connect.AddFlags(fs)
			port := ticket.AddPortFlags(fs, true)
			give := fs.Bool("give", false, "give the ticket of --ticket-file back when COMMAND has ended")
			rate := fs.String("rate", "",
				"run COMMAND when the rate limit at PATH allows it (`N/TIME`, such as 100/1m); take no lock")
			return func(c *call.Call) error {
				switch {
				case fs.Changed("rate"):
					return runByRate(c, *rate, port, lock, run, conn)
				case fs.Changed("ticket-file"):
					return runByTicket(c, port, *give, lock, run, conn)
				case len(c.Args) == 0:
					return cli.Usagef("missing operand; usage: zlock run PATH… -- COMMAND [ARG…]")
				}
				return runUnderLock(c, lock, run, conn)
			}
		},
	}
}

// only() refuses options that have no effect together with the option `beside`: all that are not in
// `allowed`.
func (f *runFlags) only(beside string, allowed ...string) (err error) {
	f.fs.Visit(func(g *pflag.Flag) {
		if err == nil && g.Name != beside && !slices.Contains(allowed, g.Name) {
			err = cli.Usagef("--%s does not work with --%s", g.Name, beside)
		}
	})
	return err
}

func runUnderLock(c *call.Call, lock *lockFlags, run *runFlags, conn *connect.Flags) error {
	if err := lock.check(); err != nil {
		return err
	}
	j, err := begin(c, run, conn, lock.killAfter, lock.isRevocable(), lock.mode())
	if err != nil {
		return err
	}
	return j.repeat(false, func(ctx context.Context) (*client.Lease, error) {
		return lock.acquire(ctx, newWaitTeller(c.App, j.cl, conn.Quiet), j.task, c.Args)
	})
}

// job is a COMMAND that runs under a lock, with all that zlock needs for that.
type job struct {
	*call.Call
	supervise.Loss
	flags                 *runFlags
	conn                  *connect.Flags
	exe                   executable
	servers, chroot, task string
	ctx                   context.Context // ends at a signal; used while COMMAND does not run
	stop                  func()
	cl                    *client.Client
	guard                 *supervise.Guard // guards COMMAND, or waits for the next one
}

// begin() prepares to compete for the lock: it checks the options, starts a guard, and opens the
// session. With --inherit, if an ancestor of this process holds the paths, begin() replaces zlock by
// COMMAND and does not return.
func begin(c *call.Call, run *runFlags, conn *connect.Flags, killAfter time.Duration, revocable bool,
	mode fence.Mode) (*job, error) {
	j := &job{Call: c, flags: run, conn: conn, task: taskOf(c.Getenv)}
	var err error
	if j.Loss, err = run.loss(killAfter, revocable); err != nil {
		return nil, err
	}
	j.Nested = supervise.GraceWithin(c.Getenv("ZLOCK_GRACE"))
	if err = j.startGuard(); err != nil { // start it first: while it starts, zlock can connect
		return nil, err
	}
	go supervise.Reap()
	if j.exe, err = findExecutable(c.Dashed, run.shell); err != nil {
		return nil, err
	}
	if j.OnLost != 0 {
		conn.Margin = connect.MarginFor(killAfter)
		if err := connect.CheckMargin(true, conn.SessionTimeout, killAfter); err != nil {
			return nil, err
		}
	}
	if j.servers, j.chroot, err = conn.Address(c.Getenv); err != nil {
		return nil, err
	}
	j.ctx, j.stop = call.Interruptible()
	if j.cl, err = connect.Dial(j.ctx, c, conn); err != nil {
		j.end()
		return nil, err
	}
	// Tell the guard the session now: if zlock is killed while it waits, the guard closes the session, and its
	// place in the queue is free at once.
	j.tellSession()
	held, err := inherited(j.ctx, c, j.cl, j.chroot, c.Args, run.inherit, mode)
	if err == nil && held != nil {
		err = run.ready("locked " + held[0].Token.String())
	}
	if err != nil || held != nil {
		j.end()
	}
	if err == nil && held != nil {
		err = syscall.Exec(j.exe.path, j.exe.argv, j.environ(held, inheritedSlots(c, held)))
		err = cli.Exitf(supervise.NotStarted(err), "%s: %w", j.exe.path, err)
	}
	return j, err
}

// tellSession tells the guard which session to close if zlock dies.
func (j *job) tellSession() {
	ended, end := context.WithCancel(context.Background())
	end()
	if conn, err := j.cl.Conn(ended); err == nil {
		key := sessionKey{j.servers, conn.Session(), j.conn.TLSFiles}
		j.guard.Bequeath(key.encode())
	}
}

// startGuard starts the guard of the next COMMAND.
func (j *job) startGuard() error {
	self, err := os.Executable()
	if err == nil {
		j.guard, err = supervise.StartGuard(self)
	}
	return err
}

// nextGuard starts another guard in place of one whose COMMAND has ended. It closes the session if zlock is
// killed during the next wait.
func (j *job) nextGuard() error {
	defer j.guard.Done()
	if err := j.startGuard(); err != nil {
		return err
	}
	j.tellSession()
	return nil
}

// end() releases everything. It dismisses the guard last: if zlock is killed before, the guard closes the
// session.
func (j *job) end() {
	j.stop()
	if j.cl != nil {
		connect.HangUp(j.Call, j.cl)
	}
	if j.guard != nil {
		j.guard.Done()
	}
}

// restartPause is the pause before COMMAND is run again, so that a COMMAND that ends at once causes no busy
// loop.
const restartPause = 500 * time.Millisecond

// repeat() runs COMMAND under a lease that take() returns. If `again` is true, it takes another lease
// whenever COMMAND ends or loses its lock, until the user ends zlock. At the end it releases everything.
func (j *job) repeat(again bool, take func(context.Context) (*client.Lease, error)) error {
	defer j.end()
	for {
		lease, err := take(j.ctx)
		if err != nil {
			return err
		}
		end, told, err := j.under(lease)
		if err != nil {
			return err
		}
		if !again || told {
			return end
		}
		if err := j.nextGuard(); err != nil {
			return err
		}
		j.flags.readyFD = -1 // ready() has written its line, and must not write another
		j.ctx, j.stop = call.Interruptible()
		if err := call.Sleep(j.ctx, restartPause); err != nil {
			return err
		}
	}
}

// under() runs COMMAND while the lease is held, and then releases the lease. `end` is how zlock ends, unless
// it takes the lock again. `told` says that the user told COMMAND to end.
func (j *job) under(lease *client.Lease) (end error, told bool, err error) {
	s := holding{App: j.App, lease: lease}
	sigs := supervise.ListenForCommand() // zlock now passes signals on to COMMAND, and does not end by them
	j.stop()
	if err := call.Interrupted(j.ctx); err != nil { // a signal came while zlock still ended by it
		signal.Stop(sigs)
		s.giveBack()
		return nil, false, err
	}
	j.tellSession()           // the client may have begun another session since
	slots, _ := lease.Slots() // no error: only --need-slot demands permits with numbers, and that was checked
	out, err := j.supervise(s.right(describe(j.Args)), lease.Sequencers(), slots, sigs)
	s.code = out.Right
	return j.endOf(&out, s.release(cmp.Or(out.Right, out.Code))), out.Told, err
}

// supervise() runs COMMAND under a right to hold `locks`. It sets COMMAND's environment from them, and says
// on --ready-fd that the lock is held.
func (j *job) supervise(r supervise.Right, locks []fence.Sequencer, slots []int, sigs chan os.Signal) (
	out supervise.Outcome, err error) {
	if err = j.flags.ready("locked " + locks[0].Token.String()); err != nil {
		signal.Stop(sigs)
		return out, err
	}
	call.OutliveReaders()
	return j.guard.Run(r, &supervise.Command{
		Path: j.exe.path, Argv: j.exe.argv, Env: j.environ(locks, slots),
		Foreground: j.flags.inForeground(j.App), Contain: j.flags.contain, Leave: j.flags.leave,
		Loss: j.Loss, Say: j.Say,
	}, sigs)
}

// endOf returns the error with which zlock ends after COMMAND: the exit code, or SIGINT if that ended
// COMMAND.
func (j *job) endOf(out *supervise.Outcome, code int) error {
	if code == supervise.SignalCode(syscall.SIGINT) &&
		(out.Signal == syscall.SIGINT || j.flags.contain && out.Told) { // with --contain, only the code tells
		return &call.SignalError{Sig: syscall.SIGINT}
	}
	return cli.Exit(code)
}

// right() returns COMMAND's right to run, which lasts as long as the lock. `what` names the lock in messages.
func (s *holding) right(what string) supervise.Right {
	asked := make(chan string, 1)
	go func() {
		select {
		case r := <-s.lease.Asked():
			asked <- requestText(what, r)
		case <-s.lease.Context().Done():
		}
	}()
	return supervise.Right{Lost: s.lease.Lost(), Err: s.lease.Err, Until: s.lease.Until, Code: s.lossCode,
		Asked: asked, AskedCode: call.ExitRevoked}
}

// parseSignal reads a signal, such as TERM, SIGTERM or 15.
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("no signal is called %q", s)
}

// executable is COMMAND's file and arguments.
type executable struct {
	path string
	argv []string
}

// findExecutable finds COMMAND in the words after -- or in the argument of -c. It is called before zlock
// joins a queue, so that a mistake shows at once.
func findExecutable(words []string, shell string) (executable, error) {
	if shell != "" {
		if len(words) > 0 {
			return executable{}, cli.Usagef("-c and a COMMAND after -- exclude each other")
		}
		words = []string{"/bin/sh", "-c", shell}
	}
	if len(words) == 0 {
		return executable{}, cli.Usagef("COMMAND is missing: give it after --, or use -c")
	}
	name := words[0]
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot) && path != "":
		return executable{path, words}, nil
	case errors.Is(err, fs.ErrPermission):
		return executable{}, cli.Exitf(call.ExitNotExec, "%s cannot be executed: %w", name, err)
	}
	if info, err := os.Stat(name); err == nil && (info.IsDir() || info.Mode().Perm()&0o111 == 0) {
		return executable{}, cli.Exitf(call.ExitNotExec, "%s cannot be executed", name)
	}
	return executable{}, cli.Exitf(call.ExitNotFound, "%s is not found", name)
}
