package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// The guard is a second process of this program. It knows until when COMMAND's
// lock is safe and ends COMMAND's process group at that moment if zlock does not,
// because it is stopped, starved or dead. It runs in a session of its own, so
// that what hits zlock's process group does not hit it.
//
// zlock writes lines to its standard input:
//
//	deadline T   the lock is safe until T (boot clock, ns), if nothing new comes
//	lost T       zlock saw the loss and has signalled; kill at T
//	done         nothing is left to guard
//
// The guard answers "ok" to the first line. The end of its input without "done"
// means that zlock is dead.
//
// COMMAND is zlock's child, not the guard's, so that either of the two may die
// alone: zlock starts another guard, the guard ends COMMAND with its grace. If both
// are killed at once COMMAND gets the signal of --on-lost from the system, and may
// ignore it; --contain is for those who must exclude that too.

// guardName is what the process table calls the guard: whoever kills all that is
// called zlock must not kill with it what stays behind to end COMMAND.
const guardName = "lock-guard"

// guardLag is how long zlock gets to signal at the deadline before the guard does.
const guardLag = 250 * time.Millisecond

// guardTick is the longest the guard sleeps at a stretch: timers stand still
// while the machine sleeps, the boot clock does not.
const guardTick = time.Second

// guard is zlock's end.
type guard struct {
	args []string
	cmd  *exec.Cmd
	in   io.WriteCloser
	dead chan struct{}
	last time.Duration // deadline told
}

// startGuard starts a guard of t and waits until it is in place.
func startGuard(t target, sig syscall.Signal, killAfter time.Duration, deadline time.Duration) (*guard, error) {
	g := &guard{args: []string{guardName, "__guard",
		"--pid=" + strconv.Itoa(t.pid), "--group=" + strconv.FormatBool(t.group),
		"--signal=" + strconv.Itoa(int(sig)), "--kill-after=" + killAfter.String(), "--mark=" + t.mark}}
	err := g.launch(deadline)
	for range 3 {
		if err == nil || !g.killed() {
			break
		}
		// A signal for zlock's group came before the guard had left the group.
		// It is for zlock to act on; COMMAND needs its guard until it has.
		err = g.launch(deadline)
	}
	return g, err
}

// killed waits for the end of a guard that did not start, and reports whether a
// signal ended it.
func (g *guard) killed() bool {
	if g.cmd == nil {
		return false
	}
	<-g.dead
	status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

func (g *guard) launch(deadline time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Args = g.args
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the guard: %w", err)
	}
	g.cmd, g.in, g.last = cmd, in, 0
	g.dead = make(chan struct{})
	g.tell(deadline)
	answer, err := bufio.NewReader(out).ReadString('\n')
	dead := g.dead
	go func() {
		_ = cmd.Wait()
		close(dead)
	}()
	if err != nil || answer != "ok\n" {
		_ = in.Close()
		return fmt.Errorf("the guard did not start: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// tell passes a new deadline on.
func (g *guard) tell(deadline time.Duration) {
	if deadline != g.last {
		g.last = deadline
		fmt.Fprintf(g.in, "deadline %d\n", deadline)
	}
}

// lost says that the group has been told and is to be killed at kill.
func (g *guard) lost(kill time.Duration) { fmt.Fprintf(g.in, "lost %d\n", kill) }

// done dismisses the guard.
func (g *guard) done() {
	fmt.Fprintln(g.in, "done")
	_ = g.in.Close()
	<-g.dead
}

// guardCommand is the guard's own program.
func guardCommand() *command {
	return &command{
		name: "__guard", does: "end a process group when its lock is no longer safe", hidden: true,
		setup: func(fs *pflag.FlagSet) func(*call) error {
			w := &watchman{lines: make(chan string)}
			fs.IntVar(&w.pid, "pid", 0, "process or process group")
			fs.BoolVar(&w.group, "group", false, "it is a group")
			fs.StringVar(&w.mark, "mark", "", "variable in the environment of what comes from it")
			fs.DurationVar(&w.killAfter, "kill-after", 0, "time between the signal and KILL")
			sig := fs.Int("signal", int(syscall.SIGTERM), "signal to send first")
			return func(c *call) error {
				w.sig = syscall.Signal(*sig)
				if w.pid <= 1 {
					return usagef("not for use by hand")
				}
				w.say = c.say
				return w.watch(c.stdin, c.stdout)
			}
		},
	}
}

// watchman is the guard's end.
type watchman struct {
	target
	sig       syscall.Signal
	killAfter time.Duration
	say       func(string, ...any)
	lines     chan string
	parent    int // zlock

	deadline  time.Duration
	kill      time.Duration // when to kill, 0 while all is well
	signalled bool
	kills     int  // how often it has killed
	ended     bool // nothing is left to kill
}

// signal and alive are target's, and the family's.
func (w *watchman) signal(sig syscall.Signal) {
	w.target.signal(sig)
	for _, pid := range w.family() {
		(target{pid: pid}).signal(sig)
	}
}

func (w *watchman) alive() bool { return w.target.alive() || len(w.family()) > 0 }

func (w *watchman) family() []int {
	if w.mark == "" {
		return nil
	}
	return markedBy(w.mark)
}

// Times of the guard when it acts. It looks seldom: each look reads the table of
// processes, and nobody is there to see that it uses a core.
const (
	killAgain = 50 * time.Millisecond // after the first KILL; then twice that, and so on
	lookMost  = 200 * time.Millisecond
	giveUp    = 5 * time.Second // after the first KILL: what lives then cannot be killed by us
)

func (w *watchman) watch(in io.Reader, out io.Writer) error {
	// zlock and its shell may be told to end; the guard ends with its work.
	nameProcess(guardName)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGTSTP)
	w.parent = os.Getppid()
	closeInherited()
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return w.orphaned()
			}
			if line == "done" {
				return nil
			}
			first := w.deadline == 0
			w.read(line)
			if first {
				fmt.Fprintln(out, "ok")
			}
		case <-time.After(w.pause()):
		}
		// The end of the input says the same, unless something holds it open.
		if os.Getppid() != w.parent {
			return w.orphaned()
		}
		w.look()
	}
}

// read takes one line.
func (w *watchman) read(line string) {
	word, rest, _ := strings.Cut(line, " ")
	ns, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return
	}
	switch at := time.Duration(ns); word {
	case "deadline":
		w.deadline = at
		if !w.signalled {
			w.kill = 0
		}
	case "lost":
		w.signalled, w.kill = true, at
	}
}

// look does what is due.
func (w *watchman) look() {
	now := bootClock()
	if w.ended || w.deadline == 0 && !w.signalled {
		return // zlock has not said yet; if it dies before, its input ends
	}
	if !w.signalled && now >= w.deadline+guardLag {
		w.say("guard: the lock of process %d is not safe any more and zlock does not react: sending %s", w.pid, signalName(w.sig))
		w.end(w.deadline)
	}
	if w.kill == 0 || now < w.kill {
		return
	}
	if w.kills > 0 && !w.alive() {
		// zlock is not dead, or this process would have ended: it is stopped, and
		// reaps COMMAND when it goes on.
		w.ended = true
		return
	}
	w.signal(syscall.SIGKILL)
	w.kills++
	w.kill = now + min(killAgain<<min(w.kills-1, 10), guardTick) // again, until nothing is left
}

// end sends the signal and sets the time of the kill.
func (w *watchman) end(from time.Duration) {
	w.signal(w.sig)
	w.signalled, w.kill = true, from+w.killAfter
}

func (w *watchman) pause() time.Duration {
	next := w.deadline + guardLag
	if w.ended || w.deadline == 0 && !w.signalled {
		return guardTick
	}
	if w.signalled {
		next = w.kill
	}
	return min(max(next-bootClock(), time.Millisecond), guardTick)
}

// orphaned: zlock is dead, nobody keeps the session alive, and nobody else will
// end the group before the server gives the lock away.
func (w *watchman) orphaned() error {
	if !w.alive() {
		return nil
	}
	if !w.signalled {
		w.say("guard: zlock died: sending %s to process %d", signalName(w.sig), w.pid)
		from := bootClock()
		if w.deadline != 0 {
			from = min(from, w.deadline)
		}
		w.end(from)
	}
	var killed time.Time
	for pause := time.Millisecond; w.alive(); pause = min(2*pause, lookMost) {
		w.look()
		switch {
		case w.kills > 0 && killed.IsZero():
			killed = time.Now()
		case w.kills > 0 && time.Since(killed) > giveUp:
			return fmt.Errorf("guard: process %d cannot be killed", w.pid)
		}
		time.Sleep(min(w.pause(), pause))
	}
	return nil
}

// closeInherited closes what the user's shell handed to zlock: nobody should
// have to wait for the guard to see the end of a pipe. What this program opened
// itself is marked close-on-exec.
func closeInherited() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
