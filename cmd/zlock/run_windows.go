package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// A COMMAND under a lock needs process groups and signals, which Windows lacks.
func runCommand() *command   { return unixOnly("run") }
func electCommand() *command { return unixOnly("elect") }
func guardCommand() *command { return unixOnly("__guard") }
func keepCommand() *command  { return unixOnly("__keep") }

func unixOnly(name string) *command {
	return &command{
		Name: name, Args: "PATH -- COMMAND", Runs: true,
		Does:   "not on Windows: a program can keep zlock hold beside it",
		Hidden: strings.HasPrefix(name, "__"),
		Setup: func(*pflag.FlagSet) func(*call) error {
			return func(*call) error { return cli.Usagef("not on Windows; use zlock hold") }
		},
	}
}
