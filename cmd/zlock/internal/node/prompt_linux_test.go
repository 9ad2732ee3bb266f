package node

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An interrupt ends the verb that runs. The verbs after it work.
func TestPromptGoesOnAfterAnInterrupt(t *testing.T) {
	s, _, _ := newShell(t)
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer person.Close()
	must.OK(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN))(t)
	tty := must.Get(os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Prompt(interrupted, tty, tty)
		tty.Close()
	}()
	must.Get(person.WriteString("ls /\rquit\r"))(t)
	var said strings.Builder
	b := make([]byte, 4096)
	for { // until the terminal is closed
		n, err := person.Read(b)
		if said.Write(b[:n]); err != nil {
			break
		}
	}
	expect.OK(t, <-ended)
	expect.Has(t, said.String(), "[zookeeper]")
}
