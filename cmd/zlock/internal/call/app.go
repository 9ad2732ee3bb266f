// Package call is one call of a command as the command sees it: its streams, what it prints and says, its
// exit codes, the signals that end it, and the flags that have values of their own kinds. It knows no server.
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

// App is the process as its commands see it.
type App struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	Terminal       bool // standard output is a terminal
	Getenv         func(string) string
	Interrupted    bool // the command ends because of SIGINT
}

// Say writes a message to standard error, in a line.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.PatientStderr(), "zlock: %s\n", Clean(fmt.Sprintf(format, args...)))
}

// PatientStderr is standard error for messages that must not hold up their writer.
func (a *App) PatientStderr() io.Writer { return patient{a.Stderr} }

// patient waits for the reader of what it writes, but not for long: a COMMAND that has lost its lock
// ends in time, although the reader of zlock's messages stands still.
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
