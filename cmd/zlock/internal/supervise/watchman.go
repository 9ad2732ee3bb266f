//go:build !windows

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardLag is how long after the deadline the guard waits, so that a zlock that works ends COMMAND itself.
const guardLag = 250 * time.Millisecond

// guardTick bounds the guard's sleeps. While the machine sleeps, timers stand still but the boot clock runs,
// so the guard must look at the clock again.
const guardTick = time.Second

// Watch is the code of the guard. It serves zlock, which is at the other end of `conn`, until zlock dismisses
// it or dies. `stdin` is COMMAND's standard input. If zlock dies, Watch waits until no process of COMMAND
// runs, and then calls carryOut() with zlock's will.
func Watch(conn *os.File, stdin int, say func(string, ...any), carryOut func(will []byte) error) error {
	unix.CloseOnExec(stdin)
	return (&watchman{wire: newWire(conn), say: say, stdin: stdin, carryOut: carryOut}).watch()
}

// watchman is the guard's own side.
type watchman struct {
	*wire
	target
	sig       syscall.Signal
	killAfter time.Duration
	say       func(string, ...any)
	stdin     int           // COMMAND's standard input
	parent    int           // process id of zlock
	ends      chan news     // reports of the ends of COMMAND and of the other children
	alone     chan struct{} // closed when no child is left
	will      []byte
	carryOut  func([]byte) error

	deadline time.Duration
	kill     time.Duration // when to kill COMMAND's processes; 0: not decided yet
	kills    int           // number of kills so far
	ended    bool          // no process of COMMAND is left
}

// Times of the guard while it ends processes. It looks rarely whether they have ended: each look reads the
// process table, and in a loop that would keep a processor busy.
const (
	killAgain = 50 * time.Millisecond // pause after the first KILL; it doubles each time
	killMost  = 10                    // after this many KILLs, which take 5 s, the guard gives up
	lookMost  = 200 * time.Millisecond
	leftFor   = 50 * time.Millisecond // how long after zlock's death the guard still reads zlock's messages
)

// watch() serves zlock until zlock dismisses the guard or dies.
func (w *watchman) watch() error {
	nameProcess(guardName)
	w.parent, w.ends, w.alone = os.Getppid(), make(chan news, 2), make(chan struct{})
	// Receive these signals, so that they do not end the guard. A signal that zlock ignored from its start stays
	// ignored, and COMMAND ignores it, too.
	told := make(chan os.Signal, 16)
	for _, s := range slices.Concat(EndSignals, []os.Signal{syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP,
		syscall.SIGUSR1, syscall.SIGUSR2}) {
		if !signal.Ignored(s) {
			signal.Notify(told, s)
		}
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if err := w.in.Decode(&o); err != nil {
				return
			}
			orders <- o
		}
	}()
	return w.serve(orders, told)
}

// serve() carries out orders, and passes on the signals that the guard receives.
func (w *watchman) serve(orders <-chan order, told <-chan os.Signal) error {
	// After zlock's death the guard still reads the orders that zlock sent before. If one of them dismisses the
	// guard, the session is closed, and the guard must not wait for servers to close it again.
	var ended <-chan time.Time
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				return w.orphaned()
			}
			if o.Done {
				return nil
			}
			w.take(&o)
		case <-ended:
			return w.orphaned()
		case n := <-w.ends:
			for len(told) > 0 { // report signals first: one of them may have ended COMMAND
				w.passOn(<-told)
			}
			w.report(n)
		case s := <-told:
			w.passOn(s)
		case <-time.After(w.pause()):
		}
		// zlock is dead if this process has another parent. The end of the input does not always show that: another
		// process may hold zlock's end open.
		if ended == nil && os.Getppid() != w.parent {
			ended = time.After(leftFor)
		}
		w.look()
	}
}

// passOn reports a signal to zlock. The sender wants to end zlock, but has sent it to COMMAND's parent, which
// is the guard.
func (w *watchman) passOn(s os.Signal) {
	if tellsToEnd(s) {
		w.report(news{Signal: s.(syscall.Signal)})
	}
}

// report() sends news to zlock. It ignores an error, because the end of the input shows that zlock is dead.
func (w *watchman) report(n news) { _ = w.out.Encode(n) }

// take() carries out an order of zlock.
func (w *watchman) take(o *order) {
	if o.Will != nil {
		w.will = o.Will
	}
	if o.Deadline != 0 {
		w.deadline = o.Deadline
	}
	if o.Kill != 0 && w.kill == 0 {
		w.kill = o.Kill
	}
	if o.Start != nil {
		w.start(o.Start)
	}
}

// start starts COMMAND.
func (w *watchman) start(l *launch) {
	w.sig, w.killAfter = l.OnLost, l.KillAfter
	path, argv := l.Path, l.Argv
	attr := &syscall.SysProcAttr{Setpgid: l.Group == 0}
	if l.OnLost != 0 {
		dieWithParent(attr, syscall.SIGKILL)
	}
	if l.Contain {
		Contain(attr)
		self, err := os.Executable()
		if err != nil {
			w.report(news{Failed: ExitFailed, Why: err.Error()})
			return
		}
		path, argv = self, keeperArgs(l, path, argv)
	}
	if l.Group != 0 {
		// The guard joins the group, and COMMAND inherits it. COMMAND could not join by itself: in a namespace of
		// its own, the group has no number.
		_ = syscall.Setpgid(0, l.Group)
	}
	w.all = !l.Leave && adoptOrphans()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: l.Env, Files: []uintptr{uintptr(w.stdin), 1, 2}, Sys: attr,
	})
	if l.Group != 0 {
		// Leave the session after COMMAND has started. Otherwise the system could take the caller's group for
		// orphaned when COMMAND ends. It would then send SIGHUP to that group if one of its processes is stopped,
		// and so end the script that called zlock.
		_, _ = syscall.Setsid()
	}
	switch {
	case err != nil && l.Contain:
		w.report(news{Failed: ExitFailed, Why: fmt.Sprintf("--contain: cannot create a PID namespace for "+
			"COMMAND: %v. Run as root or with CAP_SYS_ADMIN, or let users create namespaces", err)})
		return
	case err != nil:
		w.report(news{Failed: NotStarted(err), Why: fmt.Sprintf("%s: %v", path, err)})
		return
	}
	w.pid, w.group = pid, l.Group == 0
	w.kin = func(spare func(process) bool) []process {
		return descendants(self(), func(p process) bool {
			return spare(p) || l.Leave && p.parent == self() && p.ours != pid
		})
	}
	go w.reap()
	w.report(news{Started: pid})
	closeFD(w.stdin)
	closeFD(1)
	closeInherited()
}

// reap() waits for the ends of COMMAND and of all other processes that the guard adopts.
func (w *watchman) reap() {
	var ended news
	for how := 0; ; {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, how, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child is left
			close(w.alone)
			ended.Alone = true
			w.ends <- ended
			return
		case pid == w.pid:
			ended, how = news{Ended: true, Status: st}, syscall.WNOHANG
		case pid == 0:
			w.ends <- ended
			ended, how = news{}, 0
		}
	}
}

// alive() reports whether a process of COMMAND still runs.
func (w *watchman) alive() bool {
	switch {
	case w.pid == 0:
		return false
	case w.all:
		return !closed(w.alone)
	case w.group:
		return groupAlive(w.pid)
	}
	return Alive(w.pid)
}

// due() returns the time at which the guard must send the next signal. `any` is false if COMMAND has not
// started, may continue without its right, or has no process left.
func (w *watchman) due() (at time.Duration, any bool) {
	at = w.kill
	if at == 0 {
		at = w.deadline + guardLag
	}
	return at, w.pid != 0 && w.sig != 0 && !w.ended
}

// look() checks whether a signal is due, and sends it.
func (w *watchman) look() {
	now := BootClock()
	switch at, any := w.due(); {
	case !any || now < at:
	case !w.alive():
		// COMMAND has ended, so the guard's work is done. zlock releases the lock, or does so when it continues if
		// it is stopped now.
		w.ended = true
	case w.kill == 0:
		w.say("guard: the lock of process %d is not safe any more and zlock does not react: sending %s", w.pid,
			SignalName(w.sig))
		w.end(w.deadline)
	default:
		w.signal(syscall.SIGKILL)
		w.kills++
		w.kill = now + min(killAgain<<min(w.kills-1, 10), guardTick) // and again, until no process is left
	}
}

// end() sends COMMAND the first signal. It sets the time after which COMMAND is killed.
func (w *watchman) end(from time.Duration) {
	w.signal(w.sig)
	w.kill = from + w.killAfter
}

func (w *watchman) pause() time.Duration {
	at, any := w.due()
	if !any {
		return guardTick
	}
	return min(max(at-BootClock(), time.Millisecond), guardTick)
}

// orphaned() is called when zlock is dead. It ends COMMAND at once: without zlock nothing renews the right,
// and no other process ends COMMAND before the lock moves. But if COMMAND may continue without the right,
// orphaned() only waits for COMMAND's end.
func (w *watchman) orphaned() error {
	if w.sig == 0 {
		for w.alive() {
			select {
			case <-w.ends:
			case <-time.After(guardTick):
			}
		}
		return w.bequeath()
	}
	if w.kill == 0 && w.alive() {
		w.say("guard: zlock died: sending %s to process %d", SignalName(w.sig), w.pid)
		from := BootClock()
		if w.deadline != 0 {
			from = min(from, w.deadline)
		}
		w.end(from)
	}
	for pause := time.Millisecond; w.alive(); pause = min(2*pause, lookMost) {
		if w.kills == killMost {
			return fmt.Errorf("guard: process %d cannot be killed", w.pid)
		}
		w.look()
		time.Sleep(min(w.pause(), pause))
	}
	return w.bequeath()
}

// closeInherited closes the files that are meant for COMMAND, so that the guard does not keep a pipe open. It
// leaves those that this program has opened: these are marked close-on-exec.
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

// bequeath() carries out the will, if there is one.
func (w *watchman) bequeath() error {
	if w.will == nil {
		return nil
	}
	return w.carryOut(w.will)
}
