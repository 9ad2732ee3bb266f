package main

import "os"

func main() {
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		terminal: isTerminal(os.Stdout), getenv: os.Getenv,
	}
	os.Exit(a.main(os.Args[1:]))
}
