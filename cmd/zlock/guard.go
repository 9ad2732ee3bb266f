//go:build !windows

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// The guard is a second process of this program. It starts COMMAND and knows until when
// COMMAND's lock is safe. It ends COMMAND at that moment if zlock, stopped, starved or dead,
// does not. It has a process group of its own, so that a signal to zlock's group does not
// reach it.
//
// COMMAND is the guard's child, and the system kills it when the guard dies. So either of the
// two may be killed: without zlock the guard ends COMMAND with its grace and closes the
// session, so that the lock moves at once; without the guard COMMAND is dead, whether or not
// zlock lives.
//
// zlock and the guard exchange JSON objects over a socket. If the guard's input ends without
// "done", zlock is dead.

// order is a message from zlock to the guard.
type order struct {
	Start    *launch       `json:",omitempty"`
	Session  *sessionKey   `json:",omitempty"` // the guard closes it if zlock dies
	Deadline time.Duration `json:",omitempty"` // the lock is safe until then, on the boot clock
	Lost     time.Duration `json:",omitempty"` // zlock saw the loss and has signalled; kill then
	Done     bool          `json:",omitempty"` // nothing is left to guard
}

// news is a message from the guard to zlock.
type news struct {
	PID    int    `json:",omitempty"` // COMMAND was started
	Failed string `json:",omitempty"` // or was not, and why
	Code   int    `json:",omitempty"` // the exit code for that
	Ended  bool   `json:",omitempty"` // COMMAND has ended
	Status int    `json:",omitempty"` // with this status
	Signal int    `json:",omitempty"` // a process sent this to the guard, as COMMAND's parent
}

// launch says how COMMAND is started. Its words need not be UTF-8.
type launch struct {
	Path      []byte
	Argv, Env [][]byte
	Group     int            // the process group to join, 0 for a new one
	Mark      string         // variable in the environment of COMMAND and its descendants, "" for none
	Contain   bool           // in a process namespace
	OnLost    syscall.Signal // the first signal on loss, 0: COMMAND goes on
	KillAfter time.Duration
}

func newLaunch(exe executable, env []string, foreground, contained bool, loss lossFlags) *launch {
	l := &launch{Path: []byte(exe.path), Argv: words(exe.argv), Contain: contained, OnLost: loss.onLost,
		KillAfter: loss.killAfter}
	if foreground {
		l.Group = syscall.Getpgrp()
		l.Mark = fmt.Sprintf("ZLOCK_RUN=%d-%d", os.Getpid(), bootClock())
		env = append(env[:len(env):len(env)], l.Mark)
	}
	l.Env = words(env)
	return l
}

func words(list []string) (w [][]byte) {
	for _, s := range list {
		w = append(w, []byte(s))
	}
	return w
}

func strs(list [][]byte) (s []string) {
	for _, w := range list {
		s = append(s, string(w))
	}
	return s
}

// guardName is the guard's name in the process table. It is not zlock, because a user who
// kills all processes named zlock must not kill the guard, which stays to end COMMAND.
const guardName = "lock-guard"

// guard is zlock's side of the guard.
type guard struct {
	cmd  *exec.Cmd
	conn *os.File
	mu   sync.Mutex // held while an order is written
	in   *json.Decoder
	last time.Duration // the deadline last sent
}

// startGuard starts the guard's process and does not wait until it runs.
func startGuard(self string) (*guard, error) {
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
	// The guard gets zlock's standard input and output for COMMAND, and its end of the socket.
	// Their numbers must differ from those of files that the user passes on to COMMAND: so not
	// ExtraFiles, whose numbers begin at 3.
	theirs := []int{pair[1], 0, 1}
	args := []string{guardName, "__guard"}
	for i, fd := range theirs {
		if theirs[i], err = unix.Dup(fd); err != nil {
			return nil, fmt.Errorf("start the guard: %w", err)
		}
		args = append(args, strconv.Itoa(theirs[i]))
	}
	g := &guard{cmd: exec.Command(self), conn: os.NewFile(uintptr(pair[0]), "guard")}
	g.cmd.Args, g.cmd.Stderr = args, os.Stderr
	g.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // the guard starts sooner; COMMAND has its own environment
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = g.cmd.Start()
	for _, fd := range append(theirs, pair[1]) {
		_ = unix.Close(fd)
	}
	if err != nil {
		g.conn.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g.in = json.NewDecoder(g.conn)
	return g, nil
}

// send sends an order. If that fails the guard is dead, which follow notices.
func (g *guard) send(o order) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = json.NewEncoder(g.conn).Encode(o)
}

// start makes the guard start COMMAND.
func (g *guard) start(l *launch, deadline time.Duration) (*child, error) {
	if l.Group != 0 {
		adoptOrphans() // before COMMAND starts, because it may end before its start is reported
	}
	g.last = deadline
	g.send(order{Start: l, Deadline: deadline})
	var n news
	for n.PID == 0 && n.Code == 0 {
		if err := g.in.Decode(&n); err != nil {
			return nil, fmt.Errorf("the guard did not start COMMAND: %w", err)
		}
	}
	if n.Code != 0 {
		return nil, cli.Exitf(n.Code, "%s", n.Failed)
	}
	c := &child{
		target: target{n.PID, l.Group == 0, l.Mark}, guard: g.cmd.Process.Pid,
		exited: make(chan struct{}), signals: make(chan syscall.Signal, 16), bereft: make(chan struct{}),
	}
	go c.follow(g)
	return c, nil
}

// follow reads the guard's news until COMMAND has ended.
func (c *child) follow(g *guard) {
	defer close(c.exited)
	for {
		var n news
		switch err := g.in.Decode(&n); {
		case err != nil:
			// When the guard dies the system kills COMMAND, or COMMAND goes on (warn).
			close(c.bereft)
			for c.target.alive() {
				time.Sleep(10 * time.Millisecond)
			}
			c.status = syscall.WaitStatus(syscall.SIGKILL)
			return
		case n.Ended:
			c.status = syscall.WaitStatus(n.Status)
			return
		case n.Signal != 0:
			select {
			case c.signals <- syscall.Signal(n.Signal):
			default:
			}
		}
	}
}

// tell sends a new deadline.
func (g *guard) tell(deadline time.Duration) {
	if deadline != g.last {
		g.last = deadline
		g.send(order{Deadline: deadline})
	}
}

// done dismisses the guard, which has nothing left to guard. zlock does not wait for its end.
func (g *guard) done() {
	g.send(order{Done: true})
	g.conn.Close()
	go func() { _ = g.cmd.Wait() }()
}

// notStarted returns the exit code for an error of COMMAND's start.
func notStarted(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExec
}
