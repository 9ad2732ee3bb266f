package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// dataCommand is a command that works on data while no server runs on it.
type dataCommand struct {
	name, args, does string
	help             string
	operands         int
	setup            func(*pflag.FlagSet) func(*dataCall) error
}

// dataCall is one run of a command.
type dataCall struct {
	*daemon
	ctx  context.Context
	args []string
	json bool      // one JSON object instead of text
	out  io.Writer // for the text
}

// dataCommands returns the commands in the order of the help.
func dataCommands() []*dataCommand {
	return []*dataCommand{importCommand(), exportCommand(), verifyCommand(), dumpCommand(), restoreCommand(),
		recoverCommand()}
}

// dataCommandFor finds the command that the arguments begin with.
func dataCommandFor(args []string) *dataCommand {
	if len(args) == 0 {
		return nil
	}
	for _, c := range dataCommands() {
		if c.name == args[0] {
			return c
		}
	}
	return nil
}

// errDiffer ends a command that found a difference, with exit code 1 and no further message.
var errDiffer = errors.New("differ")

// runData runs a command until it is done or a signal ends it.
func (d *daemon) runData(c *dataCommand, args []string) int {
	// A data command reads and writes everything once: memory matters more than time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.Usage = func() {}
	run := c.setup(fs)
	output := "text"
	fs.VarP(cli.NewChoice(&output, "text", "json"), "output", "o",
		"text, or json: one object in a line, see docs/data.md")
	asJSON := fs.Bool("json", false, "-o json")
	_ = fs.MarkHidden("json")
	help := fs.BoolP("help", "h", false, "print this and exit")
	if err := fs.Parse(args); err != nil {
		d.complain(flagError(err))
		fmt.Fprintf(d.stderr, "Run zlockd %s --help.\n", c.name)
		return exitUsage
	}
	if *help {
		c.print(d.stdout, fs)
		return exitOK
	}
	if fs.NArg() != c.operands {
		d.complain(fmt.Errorf("%s takes %d operands: zlockd %s", c.name, c.operands, c.usage()))
		return exitUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	call := &dataCall{d, ctx, fs.Args(), *asJSON || output == "json", d.stdout}
	if call.json {
		call.out = io.Discard
	}
	go func() { done <- run(call) }()
	var err error
	select {
	case err = <-done:
	case <-d.signals:
		cancel()
		select {
		case <-done: //nolint:errcheck // it was interrupted, and has removed what it had begun
		case <-d.signals:
			return exitAtOnce
		case <-time.After(stopTime):
		}
		err = fmt.Errorf("%s was interrupted", c.name)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w\n  Make room on that disk, and give the same command again.", err)
	}
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDiffer):
		return exitFailed
	case errors.As(err, &usage):
		d.complain(err)
		fmt.Fprintf(d.stderr, "Run zlockd %s --help.\n", c.name)
		return exitUsage
	}
	d.complain(err)
	return exitFailed
}

type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func (c *dataCommand) usage() string { return strings.TrimSpace(c.name + " " + c.args) }

// print writes the command's help.
func (c *dataCommand) print(w io.Writer, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "zlockd %s\n  %s\n\n%s\n\nFlags:\n", c.usage(), c.does, strings.TrimSpace(c.help))
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			printFlag(w, f)
		}
	})
}

// required refuses an empty flag.
func required(name, value string) error {
	if value == "" {
		return usagef("--%s is missing", name)
	}
	return nil
}

func nowMillis() int64 { return time.Now().UnixMilli() }
