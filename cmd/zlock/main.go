package main

import (
	"os"
	"runtime"
	"strings"
)

// The guard and the keeper stay on the main thread: its name is that of the process, and the
// system kills their children when it ends. All other commands are quicker without a fixed thread.
func init() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__") {
		runtime.LockOSThread()
	}
}

func main() {
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stdout), getenv: os.Getenv,
	}
	os.Exit(a.main(os.Args[1:]))
}
