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

// exitDiffer is the exit code of `verify` if the data that it compares differ.
const exitDiffer = 1

// Call is one call of a data command, such as import. No server may run on the data.
type Call struct {
	*cli.Call
	Stdout  io.Writer
	Signals <-chan os.Signal // the first signal ends the command, a second one ends the program at once
	ctx     context.Context
	json    bool      // print one JSON object, and no text, to Stdout
	out     io.Writer // for text; with `json`, it discards the text
}

// required() refuses an empty flag.
func required(name, value string) error {
	if value == "" {
		return cli.Usagef("--%s is missing", name)
	}
	return nil
}

func nowMillis() int64 { return time.Now().UnixMilli() }
