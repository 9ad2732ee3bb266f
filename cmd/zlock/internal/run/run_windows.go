package run

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// On Windows these commands return an error, because a COMMAND under a lock needs process groups and signals.
func Run() *call.Command   { return unixOnly("run") }
func Elect() *call.Command { return unixOnly("elect") }
func Guard() *call.Command { return unixOnly("__guard") }
func Keep() *call.Command  { return unixOnly("__keep") }

func unixOnly(name string) *call.Command {
	return &call.Command{
		Name: name, Args: "PATH -- COMMAND", Runs: true,
		Does:   "not on Windows: run zlock hold while your program works",
		Hidden: strings.HasPrefix(name, "__"),
		Setup: func(*pflag.FlagSet) func(*call.Call) error {
			return func(*call.Call) error { return cli.Usagef("not on Windows; use zlock hold") }
		},
	}
}
