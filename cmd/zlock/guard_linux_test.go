package main

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

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
