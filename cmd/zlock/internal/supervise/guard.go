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

// The guard is a second process of this program. It starts COMMAND. zlock tells it again and again until when
// COMMAND's lock is safe. If zlock is stopped, gets no processor time or is dead at that time, the guard ends
// COMMAND. The guard has a process group of its own, so that a signal to zlock's group does not reach it.
//
// COMMAND does not outlive its lock even if one of the two is killed. If zlock is killed, the guard ends
// COMMAND within its grace period, and then carries out zlock's will, so that the lock moves at once. If the
// guard is killed, the system kills COMMAND, which is the guard's child.
//
// zlock and the guard exchange messages over a socket. If the guard's end of the socket closes before
// order.Done has come, zlock is dead.

// order is a message of zlock to the guard. Times are on the boot clock.
type order struct {
	Will     []byte        // the guard carries this out if zlock dies
	Start    *launch       // how to start COMMAND now
	Deadline time.Duration // the lock is safe until this time
	Kill     time.Duration // when to kill COMMAND, to which zlock has already sent the first signal
	Done     bool          // zlock no longer needs the guard
}

// news is a message of the guard to zlock.
type news struct {
	Started int // COMMAND was started, with this process id
	Failed  int // COMMAND was not started, and this is the exit code
	Why     string
	Ended   bool
	Status  syscall.WaitStatus // set if Ended is true
	Alone   bool               // the guard's last child has ended, so COMMAND has left none running
	Signal  syscall.Signal     // a process sent this to COMMAND's parent, the guard, and means zlock
	Bereft  bool               // not from the guard: zlock notes here that the guard died before COMMAND
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
	Group     int            // the process group that COMMAND joins; 0: a new one
	Contain   bool           // run COMMAND in a process namespace
	Leave     bool           // let processes run on that COMMAND leaves behind
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

// guardName is the guard's name in the process table. It differs from zlock's, so that a user who kills all
// processes named zlock does not kill the guard, too: the guard must then end COMMAND.
const guardName = "lock-guard"

// Guard is the guard as zlock sees it.
type Guard struct {
	*wire
	pid  int
	mu   sync.Mutex    // held while an order is sent
	last time.Duration // the deadline that was last sent
}

// StartGuard starts the guard's process, and does not wait until it runs. The guard is this program with the
// argument "__guard"; it calls [Watch].
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

// fork() starts the guard. The guard's standard input is its end of the socket, which fork() closes here.
// fork() does not use os/exec, because that first starts another process to test system calls.
func (g *Guard) fork(self string, socket int) error {
	defer closeFD(socket)
	// The guard gets COMMAND's standard input as an extra file, because its own is the socket.
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
	env := append(os.Environ(), "GOMAXPROCS=1") // the guard starts faster with it; COMMAND does not get it
	g.pid, err = syscall.ForkExec(self, []string{guardName, "__guard", strconv.Itoa(stdin)}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{uintptr(end), 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	return err
}

// dupApart duplicates a file to a number after which the next number is free. ForkExec needs that: in the new
// process it may use the number after the highest file for a file of its own. It would sometimes overwrite
// the guard's end of the socket, or a file for COMMAND.
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

// send sends an order. If that fails, the guard is dead, and follow() notices it.
func (g *Guard) send(o order) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.out.Encode(o)
}

// start() makes the guard start COMMAND.
func (g *Guard) start(l *launch, deadline time.Duration) (*child, error) {
	c := &child{news: make(chan news), alone: make(chan struct{}), bereft: make(chan struct{})}
	// Processes that COMMAND leaves behind become children of the guard, or of zlock if the guard dies. Call
	// adoptOrphans before COMMAND starts, because COMMAND may end at once.
	c.all = !l.Leave && adoptOrphans()
	before := ChildrenOf(os.Getpid()) // not COMMAND's: the guard, and children of a shell that executed zlock
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
			// The guard is dead, but may have started COMMAND just before: kill it.
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

// follow() passes on what the guard reports until COMMAND has ended. It also closes c.alone when the guard
// has no child any longer, and c.bereft if the guard dies.
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
	// The guard is dead. Then the system kills COMMAND, but with --on-lost=warn COMMAND runs on: wait for its
	// end.
	c.news <- news{Bereft: true}
	for Alive(c.pid) {
		time.Sleep(10 * time.Millisecond)
	}
	c.status = syscall.WaitStatus(syscall.SIGKILL)
	c.news <- news{Ended: true}
}

// tell() sends the guard a new deadline. It does not if many deadlines are unread: a stopped guard reads
// none, and zlock would block as soon as the socket is full.
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
