// Package data has the commands of zlockd that work on data while no server runs on them: import, export,
// verify, restore and recover.
package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// StopTime bounds how long a server or a data command may take to stop after a signal.
const StopTime = 15 * time.Second

// Commands returns the commands that work on data, in the order of the help.
func Commands() []*Command {
	list := []*Command{importCommand(), exportCommand(), verifyCommand(), restoreCommand(),
		recoverCommand()}
	for _, c := range list {
		setup := c.Setup
		c.Setup = func(fs *pflag.FlagSet) func(*Call) error {
			run := setup(fs)
			output := cli.AddOutput(fs, "text, or json: one object in a line, see docs/data.md", "text", "json")
			asJSON := fs.Bool("json", false, "-o json")
			_ = fs.MarkHidden("json")
			return func(c *Call) error {
				c.out = c.Stdout
				if c.json = *asJSON || *output == "json"; c.json {
					c.out = io.Discard
				}
				return c.untilSignal(run)
			}
		}
	}
	return list
}

// untilSignal runs a data command until it is done or a signal ends it.
func (c *Call) untilSignal(run func(*Call) error) error {
	// Collect garbage more often than usual: a data command reads everything once, and memory matters more to it
	// than time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(c) }()
	var err error
	select {
	case err = <-done:
	case <-c.Signals:
		cancel()
		select {
		case <-done: //nolint:errcheck // the command was interrupted, and has removed what it had begun
		case <-c.Signals:
			return cli.Exit(ExitAtOnce)
		case <-time.After(StopTime):
		}
		err = fmt.Errorf("%s was interrupted", c.Name)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w\n  Make room on that disk, and give the same command again.", err)
	}
	return err
}
