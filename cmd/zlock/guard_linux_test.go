package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// COMMAND may end before zlock learns that it started: zlock adopts orphans before it asks for the start.
func TestZlockAdoptsOrphansBeforeCommandStarts(t *testing.T) {
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	ours, theirs := os.NewFile(uintptr(pair[0]), "zlock"), os.NewFile(uintptr(pair[1]), "guard")
	defer ours.Close()
	adopts := make(chan int, 1)
	go func() {
		defer theirs.Close()
		var v int32
		w := newWire(theirs)
		for {
			var o order
			if err := w.in.Decode(&o); err != nil || o.Start != nil {
				break
			}
		}
		_, _, _ = unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&v)), 0)
		adopts <- int(v)
		_ = w.out.Encode(news{Failed: exitFailed, Why: "no"})
	}()
	g := &guard{wire: newWire(ours)}
	must.Fails(t, expect.Err(g.start(&launch{Group: 1}, 0)), "COMMAND was started")
	expect.Equal(t, <-adopts, 1, "zlock does")
}

// A guard that is stopped for long does not stop zlock. It then hears of the newest deadline.
func TestGuardThatDoesNotReadHoldsNothingUp(t *testing.T) {
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	ours, theirs := os.NewFile(uintptr(pair[0]), "zlock"), os.NewFile(uintptr(pair[1]), "guard")
	defer ours.Close()
	defer theirs.Close()
	g, told := &guard{wire: newWire(ours)}, make(chan struct{})
	go func() {
		defer close(told)
		for n := range time.Duration(20000) {
			g.tell(n + 1)
		}
	}()
	select {
	case <-told:
	case <-time.After(soon):
		t.Fatal("zlock waits for the guard")
	}
	w, o := newWire(theirs), order{}
	for o.Deadline != 20001 {
		must.OK(t, w.in.Decode(&o))
		g.tell(20001)
	}
}

// Orphans of a long COMMAND do not fill the process table when they have ended.
func TestAdoptedOrphansDoNotStay(t *testing.T) {
	t.Parallel()
	c := startTalker(t, filepath.Join(built.dir, "zlock"), "run", "--foreground", "/l", "--", "sh", "-c",
		"(true & true &); echo up; read x")
	c.await(t, "up")
	guard := guardOf(t, c.Process.Pid)
	must.Await(t, "they are gone", soon, func() bool {
		return len(processes(func(p process) bool { return p.parent == guard || p.parent == c.Process.Pid })) == 2
	})
	must.OK(t, c.in.Close())
	c.Wait()
}

// A guard that finds zlock gone reads first whether zlock has dismissed it: the session is over then.
func TestGuardThatIsDismissedLeavesTheSession(t *testing.T) {
	l := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer l.Close()
	w := &watchman{session: &sessionKey{Servers: l.Addr().String(),
		Session: zk.Session{ID: 1, Timeout: time.Second, Password: make([]byte, jute.PasswordSize)}}}
	orders := make(chan order, 2)
	orders <- order{} // behind it the guard finds that its parent is another process
	orders <- order{Done: true}
	close(orders)
	must.OK(t, w.serve(orders, nil))
	must.OK(t, l.SetDeadline(time.Now().Add(50*time.Millisecond)))
	must.Fails(t, expect.Err(l.Accept()), "the guard connected to the server")
}

// A guard that dies before it has said that COMMAND runs leaves none behind: the lock moves next.
func TestCommandOfAGuardThatDiesAtOnceIsEnded(t *testing.T) {
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	ours, theirs := os.NewFile(uintptr(pair[0]), "zlock"), os.NewFile(uintptr(pair[1]), "guard")
	defer ours.Close()
	command := exec.Command("sleep", "60")
	started := make(chan error, 1)
	go func() {
		defer theirs.Close()
		_ = newWire(theirs).in.Decode(new(order))
		started <- command.Start()
	}()
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	g := &guard{wire: newWire(ours)}
	must.Fails(t, expect.Err(g.start(&launch{}, 0)), "COMMAND was started")
	must.OK(t, <-started)
	expect.That(t, !processAlive(command.Process.Pid), "COMMAND lives")
	_ = command.Process.Kill()
	_ = command.Wait()
	expect.Equal(t, command.ProcessState.Sys().(syscall.WaitStatus).Signal(), syscall.SIGKILL, "it was ended by")
}
