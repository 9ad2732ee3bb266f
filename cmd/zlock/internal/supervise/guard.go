//go:build !windows

package supervise

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// The guard is a second process of this program. It starts COMMAND and knows the deadline until which
// COMMAND's lock is safe. If zlock is stopped, gets no processor time or is dead, the guard ends COMMAND at
// the deadline. The guard has a process group of its own, so that a signal to zlock's group does not reach
// the guard.
//
// COMMAND is the guard's child, and the system kills COMMAND when the guard dies. So COMMAND does not outlive
// its lock even if zlock or the guard is killed. If zlock is killed, the guard ends COMMAND within its grace
// period and carries out zlock's will, so that the lock moves at once. If the guard is killed, COMMAND is
// dead.
//
// zlock and the guard exchange messages over a socket. If the guard's input ends without
// order.Done, zlock is dead.

// order is a message of zlock to the guard. Times are on the boot clock.
type order struct {
	Will     []byte        // the guard carries this out if zlock dies
	Start    *launch       // how to start COMMAND now
	Deadline time.Duration // the lock is safe until this time
	Kill     time.Duration // kill at this time; zlock has sent the first signal itself
	Done     bool          // zlock no longer needs the guard
}

// news is a message of the guard to zlock.
type news struct {
	Started int // process id of COMMAND
	Failed  int // the exit code, if COMMAND did not start
	Why     string
	Ended   bool
	Status  syscall.WaitStatus // set if Ended is true
	Alone   bool               // the guard has no child left: no known process of COMMAND runs
	Signal  syscall.Signal     // a signal that a process sent to the guard because it is COMMAND's parent
	Bereft  bool               // zlock's own note that the guard died before COMMAND
}

// wire is one end of the socket between zlock and its guard.
type wire struct {
	conn *os.File
	in   *gob.Decoder // reads the other end's messages
	out  *gob.Encoder
}

func newWire(conn *os.File) *wire { return &wire{conn, gob.NewDecoder(conn), gob.NewEncoder(conn)} }

// launch says how to start COMMAND.
type launch struct {
	Path      string
	Argv, Env []string
	Group     int            // the process group to join, 0 for a new one
	Contain   bool           // run COMMAND in a process namespace
	Leave     bool           // processes that COMMAND leaves behind may continue
	OnLost    syscall.Signal // the first signal on loss; 0: COMMAND continues
	KillAfter time.Duration
}

func newLaunch(c *Command) *launch {
	l := &launch{Path: c.Path, Argv: c.Argv, Env: c.Env, OnLost: c.OnLost, KillAfter: c.KillAfter,
		Contain: c.Contain, Leave: c.Leave}
	if c.Foreground {
		l.Group = syscall.Getpgrp()
	}
	return l
}

// guardName is the guard's name in the process table. A user who kills all processes named zlock must not
// kill the guard, because the guard must then end COMMAND. Therefore the name differs from zlock.
const guardName = "lock-guard"

// Guard is zlock's side of the guard.
type Guard struct {
	*wire
	pid  int
	mu   sync.Mutex    // held while an order is sent
	last time.Duration // the deadline that was last sent
}

// StartGuard starts the guard's process and does not wait until it runs. The process is this program with the
// arguments "__guard" and a number; it calls [Watch].
func StartGuard(self string) (*Guard, error) {
	syscall.ForkLock.RLock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g := &Guard{wire: newWire(os.NewFile(uintptr(pair[0]), "guard"))}
	if err = g.fork(self, pair[1]); err != nil {
		g.conn.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return g, nil
}

// fork() starts the process with its end of the socket as standard input, and closes that end here. It avoids
// os/exec, which first starts another process to test system calls.
func (g *Guard) fork(self string, socket int) error {
	defer closeFD(socket)
	// Duplicate COMMAND's standard input to a number that no file for COMMAND has.
	stdin, err := dupApart(0, unix.F_DUPFD)
	if err != nil {
		return err
	}
	defer closeFD(stdin)
	end, err := dupApart(socket, unix.F_DUPFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer closeFD(end)
	env := append(os.Environ(), "GOMAXPROCS=1") // for a faster start; COMMAND has its own environment
	g.pid, err = syscall.ForkExec(self, []string{guardName, "__guard", strconv.Itoa(stdin)}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{uintptr(end), 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	return err
}

// dupApart duplicates a file to a number that is followed by a free number. In the new process ForkExec may
// put a file of its own at the number after the highest passed file. Without the free number, ForkExec's file
// sometimes replaced the guard's end of the socket, or a file for COMMAND.
func dupApart(fd, how int) (int, error) {
	for above := 3; ; {
		dup, err := unix.FcntlInt(uintptr(fd), how, above)
		if err != nil {
			return 0, err
		}
		if _, err := unix.FcntlInt(uintptr(dup+1), unix.F_GETFD, 0); err != nil {
			return dup, nil
		}
		closeFD(dup)
		above = dup + 1
	}
}

func closeFD(fd int) { _ = unix.Close(fd) }

// send sends an order. It ignores an error, because the guard is then dead, and follow() notices that.
func (g *Guard) send(o order) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.out.Encode(o)
}

// start() makes the guard start COMMAND.
func (g *Guard) start(l *launch, deadline time.Duration) (*child, error) {
	c := &child{news: make(chan news), alone: make(chan struct{}), bereft: make(chan struct{})}
	// Processes that COMMAND leaves behind become children of the guard, or of zlock if the guard dies.
	// Prepare this now, because COMMAND may end before the guard reports its start.
	c.all = !l.Leave && adoptOrphans()
	before := ChildrenOf(os.Getpid()) // the guard, and children of a shell that has replaced itself by zlock
	c.kin = func(spare func(process) bool) []process {
		guard, orphans := 0, closed(c.bereft) // guard: its number in /proc; orphans: zlock adopts them itself
		all := descendants(self(), func(p process) bool {
			switch {
			case p.parent != self():
				return spare(p) || l.Leave && p.parent == guard && p.ours != c.pid
			case p.ours == g.pid:
				guard = p.pid
				return false
			}
			return !orphans || slices.Contains(before, p.ours) || spare(p)
		})
		return slices.DeleteFunc(all, func(p process) bool { return p.pid == guard })
	}
	g.last = deadline
	g.send(order{Deadline: deadline, Start: l})
	var n news
	for n.Started == 0 {
		switch err := g.in.Decode(&n); {
		case err != nil:
			// A dead guard may have started COMMAND, which lives a moment longer.
			close(c.bereft)
			for c.all && c.alive() {
				c.signal(syscall.SIGKILL)
				time.Sleep(time.Millisecond)
			}
			return nil, fmt.Errorf("the guard did not start COMMAND: %w", err)
		case n.Failed != 0:
			return nil, cli.Exitf(n.Failed, "%s", n.Why)
		}
	}
	c.pid, c.group = n.Started, l.Group == 0
	go c.follow(g)
	return c, nil
}

// Reap waits for every ended child, adopted ones too.
func Reap() {
	for err := error(nil); err == nil || errors.Is(err, syscall.EINTR); {
		_, err = syscall.Wait4(-1, nil, 0, nil)
	}
}

// follow() passes on the guard's news until COMMAND has ended, and records when no other process is left.
func (c *child) follow(g *Guard) {
	ended := false
	for {
		var n news
		if err := g.in.Decode(&n); err != nil {
			break
		}
		if n.Alone {
			close(c.alone)
		}
		if !ended {
			c.status, ended = n.Status, n.Ended
			c.news <- n
		}
		if n.Alone {
			return
		}
	}
	close(c.bereft)
	if ended {
		return
	}
	// When the guard dies, the system kills COMMAND; with --on-lost=warn COMMAND continues.
	c.news <- news{Bereft: true}
	for Alive(c.pid) {
		time.Sleep(10 * time.Millisecond)
	}
	c.status = syscall.WaitStatus(syscall.SIGKILL)
	c.news <- news{Ended: true}
}

// tell() sends a new deadline, unless many deadlines are still unread: if the guard is stopped and the socket
// is full, zlock would block too.
func (g *Guard) tell(deadline time.Duration) {
	if unread, _ := unix.IoctlGetInt(int(g.conn.Fd()), unix.TIOCOUTQ); unread < 1<<16 && deadline != g.last {
		g.last = deadline
		g.send(order{Deadline: deadline})
	}
}

// Bequeath gives the guard the will of this process, to carry out after its death; see [Watch].
func (g *Guard) Bequeath(will []byte) { g.send(order{Will: will}) }

// Done dismisses the guard. It does not wait for the guard's end.
func (g *Guard) Done() {
	g.send(order{Done: true})
	g.conn.Close()
	go func() { _, _ = syscall.Wait4(g.pid, nil, 0, nil) }()
}
