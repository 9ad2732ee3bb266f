package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// A COMMAND under a lock needs process groups and signals, which Windows lacks.
func runCommand() *call.Command   { return unixOnly("run") }
func electCommand() *call.Command { return unixOnly("elect") }
func guardCommand() *call.Command { return unixOnly("__guard") }
func keepCommand() *call.Command  { return unixOnly("__keep") }

func unixOnly(name string) *call.Command {
	return &call.Command{
		Name: name, Args: "PATH -- COMMAND", Runs: true,
		Does:   "not on Windows: a program can keep zlock hold beside it",
		Hidden: strings.HasPrefix(name, "__"),
		Setup: func(*pflag.FlagSet) func(*call.Call) error {
			return func(*call.Call) error { return cli.Usagef("not on Windows; use zlock hold") }
		},
	}
}
