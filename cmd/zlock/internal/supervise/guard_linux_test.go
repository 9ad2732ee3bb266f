package supervise

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// COMMAND may end before zlock learns of its start. What COMMAND leaves is still found, because zlock adopts
// orphans before it asks for the start.
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
		_ = w.out.Encode(news{Failed: ExitFailed, Why: "no"})
	}()
	g := &Guard{wire: newWire(ours)}
	must.Fails(t, expect.Err(g.start(&launch{Group: 1}, 0)), "COMMAND was started")
	expect.Equal(t, <-adopts, 1, "zlock does")
}

// A guard that is stopped for long does not delay zlock. Once it runs again, it gets the newest deadline.
func TestGuardThatDoesNotReadHoldsNothingUp(t *testing.T) {
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	ours, theirs := os.NewFile(uintptr(pair[0]), "zlock"), os.NewFile(uintptr(pair[1]), "guard")
	defer ours.Close()
	defer theirs.Close()
	g, told := &Guard{wire: newWire(ours)}, make(chan struct{})
	go func() {
		defer close(told)
		for n := range time.Duration(20000) {
			g.tell(n + 1)
		}
	}()
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("zlock waits for the guard")
	}
	w, o := newWire(theirs), order{}
	for o.Deadline != 20001 {
		must.OK(t, w.in.Decode(&o))
		g.tell(20001)
	}
}

// zlock gives its guard a will: what the guard must do after zlock's death. A guard that finds zlock dead
// first reads the remaining orders. If one of them dismisses the guard, it does not carry out the will.
func TestGuardThatIsDismissedLeavesTheWill(t *testing.T) {
	w := &watchman{will: []byte("will"), carryOut: func([]byte) error {
		t.Error("the will of a zlock that has dismissed its guard is carried out")
		return nil
	}}
	orders := make(chan order, 2)
	orders <- order{} // then the guard finds that its parent has changed: zlock is dead
	orders <- order{Done: true}
	close(orders)
	must.OK(t, w.serve(orders, nil))
}

// A guard that was not dismissed carries out zlock's will after zlock's death.
func TestGuardCarriesOutTheWill(t *testing.T) {
	got := ""
	w := &watchman{carryOut: func(will []byte) error {
		got = string(will)
		return nil
	}}
	orders := make(chan order, 1)
	orders <- order{Will: []byte("will")}
	close(orders)
	must.OK(t, w.serve(orders, nil))
	expect.Equal(t, got, "will", "carried out")
}

// If a guard dies before it reports that COMMAND runs, zlock ends COMMAND, and only then gives the lock back.
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
	g := &Guard{wire: newWire(ours)}
	must.Fails(t, expect.Err(g.start(&launch{}, 0)), "COMMAND was started")
	must.OK(t, <-started)
	expect.That(t, !Alive(command.Process.Pid), "COMMAND lives")
	_ = command.Process.Kill()
	_ = command.Wait()
	ended := command.ProcessState.Sys().(syscall.WaitStatus)
	expect.Equal(t, ended.Signal(), syscall.SIGKILL, "it was ended by")
}

// A new process may get the number of an ended one. It must not get signals that are for the ended one.
func TestSignalIsForOneProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must.OK(t, cmd.Start())
	p, ok := readProcess(cmd.Process.Pid)
	must.That(t, ok, "no process %d", cmd.Process.Pid)
	p.began--
	p.signal(syscall.SIGKILL)
	p.began++
	p.signal(syscall.SIGTERM)
	cmd.Wait()
	expect.Equal(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), syscall.SIGTERM, "what ended it")
}
