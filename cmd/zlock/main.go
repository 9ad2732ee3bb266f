package main

import (
	"os"
	"runtime"
)

func main() {
	// The kernel's parent-death signal follows the thread that started the child, so the thread
	// that runs commands must live as long as the process.
	runtime.LockOSThread()
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stdout), getenv: os.Getenv,
	}
	os.Exit(a.main(os.Args[1:]))
}
