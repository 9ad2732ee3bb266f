package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// command is a subcommand.
type command = cli.Command[*call]

// call is one call of a command.
type call struct {
	*app
	*cli.Call
}

// app is the process as its commands see it.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	terminal       bool // standard output is a terminal
	getenv         func(string) string
	interrupted    bool // the command ends because of SIGINT
}

// program is the table of zlock.
func (a *app) program() *cli.Program[*call] {
	return &cli.Program[*call]{
		Name: "zlock", Does: "run programs under distributed locks, and look after the locks",
		See:      "zlockd(8)",
		Synopsis: []string{"COMMAND [OPTIONS] …"},
		About: `zlock runs programs under distributed locks, and shows, asks back and breaks locks, with any
server that speaks the ZooKeeper protocol: zlockd or ZooKeeper. Durations are 10s, 1m30s, or a bare
number of seconds.`,
		Notes: `The servers are taken from --servers or ZLOCK_SERVERS (127.0.0.1:2181 if neither is
given), a prefix of all paths from --chroot or ZLOCK_CHROOT, the admin listener of a
zlockd from --admin-addr or ZLOCK_ADMIN.
`,
		Exits: []cli.Meaning{
			{Word: "0", Means: "done; of run and elect every code is COMMAND's, 128+N if signal N ended it"},
			{Word: "1", Means: "the answer is no, or there is nothing"},
			{Word: "2", Means: "check and break could not find out"},
			{Word: "3", Means: "wait-graph found a cycle"},
			{Word: "120", Means: "no usable session within --connect-timeout, or no answer within --timeout"},
			{Word: "121", Means: "asked to give the lock back, and stopped"},
			{Word: "122", Means: "the lock was lost while COMMAND ran"},
			{Word: "123", Means: "--max-hold reached"},
			{Word: "124", Means: "not acquired (-n, -w)"},
			{Word: "125", Means: "usage or internal error"},
			{Word: "126", Means: "COMMAND cannot be executed"},
			{Word: "127", Means: "COMMAND is not found"},
		},
		Commands: []*command{
			runCommand(), holdCommand(), lsCommand(),
			showCommand("show", "show who holds a lock and who waits for it", true, true),
			showCommand("holders", "show who holds a lock", true, false),
			showCommand("waiters", "show who waits for a lock", false, true),
			waitGraphCommand(), checkCommand(), revokeCommand(), breakCommand(), limitCommand(), electCommand(),
			leaderCommand(), takeCommand(), renewCommand(), giveCommand(), ticketsCommand(), mcpCommand(),
			doctorCommand(),
			memberCommand(), restartOrderCommand(),
			sessionsCommand(), topCommand(), endSessionCommand(), backupCommand(), exportCommand(),
			restoreCommand(), nodeCommand(), shCommand(), caCommand(), guardCommand(), keepCommand(),
		},
		OtherCommands: map[string]string{
			"lock": "run hold", "exec": "run", "flock": "run", "acquire": "hold", "list": "ls", "unlock": "break",
			"release": "break", "status": "show", "info": "show", "leaders": "leader", "election": "elect",
			"check-health": "doctor", "deadlock": "wait-graph",
		},
		OtherFlags: map[string]string{
			"p": "servers", "port": "servers", "server": "servers", "host": "servers", "addr": "servers",
			"wait": "timeout", "retry": "timeout", "ttl": "session-timeout", "mode": "shared", "read": "shared",
			"write": "exclusive", "user": "auth-file", "password": "auth-file", "h": "help",
		},
		Run: func(c *cli.Call, run func(*call) error) error {
			err := run(&call{a, c})
			e, ok := errors.AsType[*signalError](err)
			a.interrupted = ok && e.sig == syscall.SIGINT
			return err
		},
		Names:  a.namesBelow,
		Clean:  clean,
		Usage:  exitFailed,
		Failed: exitFailed,
		Stdout: a.stdout, Stderr: a.stderr,
	}
}

// main runs the command line, args without the program's name, and returns the exit code.
func (a *app) main(args []string) int { return a.program().Main(args) }

// say writes a message to standard error, in a line.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(patient{a.stderr}, "zlock: %s\n", clean(fmt.Sprintf(format, args...)))
}

// patient waits for the reader of what it writes, but not for long: a COMMAND that has lost its lock
// ends in time, although the reader of zlock's messages stands still.
type patient struct{ io.Writer }

func (p patient) Write(b []byte) (int, error) {
	written, text := make(chan struct{}), bytes.Clone(b)
	go func() {
		defer close(written)
		_, _ = p.Writer.Write(text)
	}()
	select {
	case <-written:
	case <-time.After(200 * time.Millisecond):
	}
	return len(b), nil
}
