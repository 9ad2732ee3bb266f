// Package call is the environment of one call of a command: its streams, its output and messages, its exit
// codes, the signals that end it, and flags with special types of values. It does not talk to servers.
package call

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// Command is a subcommand.
type Command = cli.Command[*Call]

// Call is one call of a command.
type Call struct {
	*App
	*cli.Call
}

// App is the environment of the process, which all commands share.
type App struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Terminal       bool // whether standard output is a terminal
	Getenv         func(string) string
	Interrupted    bool // SIGINT ended the command
}

// Say writes a message to standard error, on one line.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.PatientStderr(), "zlock: %s\n", Clean(fmt.Sprintf(format, args...)))
}

// PatientStderr returns a writer for messages on standard error. It does not block for long, even if the
// reader of the messages has stopped.
func (a *App) PatientStderr() io.Writer { return patient{a.Stderr} }

// patient is a writer that waits for its reader only for a short time. zlock must be able to end COMMAND when
// the lock is lost, even if the reader of zlock's messages has stopped.
type patient struct{ io.Writer }

func (p patient) Write(b []byte) (int, error) {
	written, text := make(chan struct{}), bytes.Clone(b)
	go func() {
		defer close(written)
		_, _ = p.Writer.Write(text)
	}()
	select {
	case <-written:
	case <-time.After(200 * time.Millisecond):
	}
	return len(b), nil
}
