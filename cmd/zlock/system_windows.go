package main

import (
	"strings"

	"github.com/spf13/pflag"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"golang.org/x/sys/windows"
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

// ttyPgrp returns -1 for a console, else 0.
func ttyPgrp(fd int) int {
	var mode uint32
	if windows.GetConsoleMode(windows.Handle(fd), &mode) != nil {
		return 0
	}
	return -1
}

// awaitUnread reports at once that the system does not tell.
func awaitUnread(int) bool { return false }

// dieOfInterrupt does nothing: no program here ends by a signal.
func dieOfInterrupt() {}
