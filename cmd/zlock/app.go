package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// command is a subcommand.
type command = cli.Command[*call]

// call is one call of a command.
type call struct {
	*app
	*cli.Call
}

// app is the process as its commands see it.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	terminal       bool // standard output is a terminal
	getenv         func(string) string
	interrupted    bool // the command ends because of SIGINT
}

// say writes a message to standard error, in a line.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.patientStderr(), "zlock: %s\n", clean(fmt.Sprintf(format, args...)))
}

// patientStderr is standard error for messages that must not hold up their writer.
func (a *app) patientStderr() io.Writer { return patient{a.stderr} }

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
