// Command zlock runs programs under distributed locks and shows, asks back and
// breaks the locks of an ensemble that speaks the ZooKeeper protocol: zlockd or
// ZooKeeper. docs/zlock.md describes it by example.
//
// Each subcommand is one [command] value in the file of its name. Its flag set also yields its
// help and its completion. Data go to standard output, everything else to standard error. Exit
// codes are part of the interface and stand in exit.go.
//
// The commands that show and change locks are thin: package client does their work. This
// package keeps a child process within the time in which its lock is safe (run.go, child.go,
// guard.go).
package main

import "os"

func main() {
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stdout), getenv: os.Getenv,
	}
	code := a.main(os.Args[1:])
	if a.interrupted {
		dieOfInterrupt()
	}
	os.Exit(code)
}
