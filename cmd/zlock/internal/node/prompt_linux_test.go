package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An interrupt ends the running verb, and later verbs work.
func TestPromptGoesOnAfterAnInterrupt(t *testing.T) {
	s, _, _ := newShell(t)
	person, tty := terminal(t)
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

// terminal() returns both ends of a terminal: the end of a person and the end of a program.
func terminal(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	must.OK(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN))(t)
	return person, must.Get(os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
}

// SIGTERM ends a prompt that waits for a verb, and one that waits for the answer to a question.
func TestTerminationEndsThePrompt(t *testing.T) {
	for _, tc := range []struct{ types, until string }{
		{"", prompt}, {"create /top x\rcreate /top/a x\rdeleteall /top\r", "?"},
	} {
		s, _, _ := newShell(t)
		person, tty := terminal(t)
		ended := make(chan error, 1)
		go func() { ended <- s.Prompt(t.Context(), tty, tty) }()
		must.Get(person.WriteString(tc.types))(t)
		said, b := "", make([]byte, 4096)
		for !strings.Contains(said, tc.until) {
			n := must.Get(person.Read(b))(t)
			said += string(b[:n])
		}
		must.OK(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		err := <-ended
		sig, ok := errors.AsType[*call.SignalError](err)
		must.That(t, ok && sig.Sig == syscall.SIGTERM, "error %v", err)
		person.Close() // ends the read that still waits
	}
}

// A signal ends a shell that waits for a verb of a script.
func TestTerminationEndsAScriptThatWaits(t *testing.T) {
	s, _, _ := newShell(t)
	r, w := io.Pipe()
	defer w.Close()
	s.In = r
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Lines(ctx) }()
	must.Get(w.Write([]byte("ls /\n")))(t) // then the script waits for the next verb
	cancel()
	expect.Is(t, <-ended, context.Canceled)
}
