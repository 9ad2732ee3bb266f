package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// target is what is ended when a lock is lost: a process group, or in the
// foreground, where zlock is in that group itself, a process and its descendants.
type target struct {
	pid   int
	group bool
	// mark is a variable in the environment of COMMAND and of all that comes
	// from it, if there is no group: what an obedient COMMAND leaves behind when
	// zlock is dead cannot be found in another way.
	mark string
}

// signal sends sig to all of it. Whoever is stopped must run to die of a signal
// other than KILL, so it is continued.
func (t target) signal(sig syscall.Signal) {
	sigs := []syscall.Signal{sig}
	if sig != syscall.SIGKILL && sig != syscall.SIGCONT && sig != syscall.SIGWINCH {
		sigs = append(sigs, syscall.SIGCONT)
	}
	for _, s := range sigs {
		if t.group {
			_ = syscall.Kill(-t.pid, s)
			continue
		}
		for _, pid := range descendants(t.pid) {
			_ = syscall.Kill(pid, s)
		}
	}
}

// alive reports whether something of it still runs. Zombies do not.
func (t target) alive() bool {
	if t.group {
		return groupAlive(t.pid)
	}
	return processAlive(t.pid)
}

// child is COMMAND.
type child struct {
	target
	guard  int // its guard's process, not to be taken for one of COMMAND's
	cmd    *exec.Cmd
	start  *os.File // a byte written here lets COMMAND begin
	leash  bool     // start stays open while this process lives
	exited chan struct{}
	status syscall.WaitStatus // valid once exited is closed
}

// lookCommand finds COMMAND, so that a mistake shows before a queue is joined.
func lookCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot) && path != "":
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", exitf(exitNotExec, "%s cannot be executed: %w", name, err)
	default:
		if info, serr := os.Stat(name); serr == nil && (info.IsDir() || info.Mode().Perm()&0o111 == 0) {
			return "", exitf(exitNotExec, "%s cannot be executed", name)
		}
		return "", exitf(exitNotFound, "%s is not found", name)
	}
}

// startChild starts COMMAND as a process that waits at its first step, so that
// its guard can be in place before it does anything. argv[0] is the name it was
// called by, path the file. It must be called from the main thread.
func startChild(path string, argv, env []string, foreground, contained bool, loss lossFlags) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The pipe's number must not be one of those the user gave us to pass on, so
	// it is not handed over as an ExtraFile, which would be number 3.
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return nil, err
	}
	unix.CloseOnExec(p[1])
	cmd := exec.Command(self)
	cmd.Args = append([]string{"zlock", "__exec", strconv.Itoa(p[0]), path}, argv...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = childAttr(loss.onLost)
	if contained {
		cmd.Args = keeperArgs(p[0], loss.onLost, loss.killAfter, foreground, path, argv)
		contain(cmd.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = !foreground
	mark := ""
	if foreground {
		adoptOrphans()
		mark = fmt.Sprintf("ZLOCK_RUN=%d-%d", os.Getpid(), bootClock())
		cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], mark)
	}
	err = cmd.Start()
	syscall.Close(p[0])
	start := os.NewFile(uintptr(p[1]), "start")
	if err != nil {
		start.Close()
		if contained && canContain {
			return nil, exitf(exitFailed, "--contain: no namespace of processes for COMMAND: %w; it takes root, CAP_SYS_ADMIN, or a system that lets users have namespaces", err)
		}
		return nil, fmt.Errorf("start a process: %w", err)
	}
	c := &child{target: target{cmd.Process.Pid, !foreground, mark}, cmd: cmd, start: start, leash: contained, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		c.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
		close(c.exited)
	}()
	return c, nil
}

// begin lets COMMAND run.
func (c *child) begin() error {
	_, err := c.start.Write([]byte{1})
	if c.leash {
		return err
	}
	return errors.Join(err, c.start.Close())
}

// signal is target's; in the foreground it also reaches what COMMAND started and
// left behind, as far as the system tells ([adoptOrphans]).
func (c *child) signal(sig syscall.Signal) {
	c.target.signal(sig)
	for _, pid := range c.orphans() {
		(target{pid: pid}).signal(sig)
	}
}

func (c *child) alive() bool { return c.target.alive() || len(c.orphans()) > 0 }

// orphans are this process's children other than COMMAND and guard.
func (c *child) orphans() (pids []int) {
	if c.group {
		return nil
	}
	for _, pid := range childrenOf(os.Getpid()) {
		if pid != c.pid && pid != c.guard {
			pids = append(pids, pid)
		}
	}
	return pids
}

// code is the exit code that stands for COMMAND's end.
func (c *child) code() int {
	if c.status.Signaled() {
		return signalCode(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// finish ends what COMMAND left running, and returns when nothing is: until then
// the lock must not move. said is called if that takes long.
func (c *child) finish(grace time.Duration, say func(string, ...any)) {
	<-c.exited
	if !c.alive() {
		return
	}
	c.signal(syscall.SIGTERM)
	kill := time.Now().Add(grace)
	complain := kill.Add(5 * time.Second)
	most := 50 * time.Millisecond
	for pause := time.Millisecond; c.alive(); pause = min(2*pause, most) {
		time.Sleep(pause)
		if time.Now().After(kill) {
			c.signal(syscall.SIGKILL)
		}
		if time.Now().After(complain) {
			say("processes of group %d cannot be killed; the lock is kept", c.pid)
			complain = complain.Add(time.Hour)
			most = time.Second // each look reads the table of processes
		}
	}
}

// execCommand is the first step of COMMAND's process.
func execCommand() *command {
	return &command{
		name: "__exec", args: "FD FILE ARGV…", does: "start a command when told so", hidden: true,
		setup: func(flags *pflag.FlagSet) func(*call) error {
			flags.SetInterspersed(false)
			return func(c *call) error {
				if len(c.args) < 3 {
					return usagef("not for use by hand")
				}
				fd, err := strconv.Atoi(c.args[0])
				if err != nil {
					return err
				}
				var b [1]byte
				n, err := syscall.Read(fd, b[:])
				for errors.Is(err, syscall.EINTR) {
					n, err = syscall.Read(fd, b[:])
				}
				if n != 1 {
					return exit(exitFailed) // zlock gave up before it began
				}
				syscall.Close(fd)
				err = syscall.Exec(c.args[1], c.args[2:], os.Environ())
				code := exitNotExec
				if errors.Is(err, fs.ErrNotExist) {
					code = exitNotFound
				}
				return exitf(code, "%s: %w", c.args[1], err)
			}
		},
	}
}
