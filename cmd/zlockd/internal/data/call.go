package data

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// Command is a command of zlockd.
type Command = cli.Command[*Call]

// ExitAtOnce is the exit code of a program that a second signal ends.
const ExitAtOnce = 3

// exitDiffer is the exit code of the command `verify` if the two sides differ.
const exitDiffer = 1

// Call is one call of a command that works on data while no server runs on it.
type Call struct {
	*cli.Call
	Stdout  io.Writer
	Signals <-chan os.Signal // the first signal ends the command, a second one ends the program at once
	ctx     context.Context
	json    bool      // one JSON object instead of text
	out     io.Writer // where the text goes
}

// required() refuses an empty flag.
func required(name, value string) error {
	if value == "" {
		return cli.Usagef("--%s is missing", name)
	}
	return nil
}

func nowMillis() int64 { return time.Now().UnixMilli() }
