// Command zlock runs programs under distributed locks. It also shows, revokes and breaks the locks of an
// ensemble that speaks the ZooKeeper protocol: zlockd or ZooKeeper. docs/zlock.md describes it by example.
//
// This package lists the commands. Each is a value from a package below internal: run, look, manage, ticket
// or node. Its help and its completion come from its flags. Data go to standard output, and everything else
// to standard error. Programs rely on the exit codes, which internal/call defines.
package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/cmd/zlock/internal/look"
	"github.com/zlockd/zlockd/cmd/zlock/internal/manage"
	"github.com/zlockd/zlockd/cmd/zlock/internal/node"
	"github.com/zlockd/zlockd/cmd/zlock/internal/run"
	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
)

func main() {
	a := &call.App{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Terminal: call.IsTerminal(os.Stdout), Getenv: os.Getenv,
	}
	code := program(a).Main(os.Args[1:])
	if a.Interrupted {
		call.DieOfInterrupt()
	}
	os.Exit(code)
}

// program() describes the command line of zlock.
func program(a *call.App) *cli.Program[*call.Call] {
	return &cli.Program[*call.Call]{
		Name: "zlock", Does: "run programs under distributed locks, and look after the locks",
		See:      "zlockd(8)",
		Synopsis: []string{"COMMAND [OPTIONS] …"},
		About: `zlock runs programs under distributed locks, and shows, revokes and breaks locks. It works
with any server that speaks the ZooKeeper protocol: zlockd or ZooKeeper. Durations are 10s,
1m30s, or a bare number of seconds.`,
		Notes: `The servers come from --servers or ZLOCK_SERVERS (127.0.0.1:2181 if neither is given), a
prefix of all paths from --chroot or ZLOCK_CHROOT, and the admin listener of a zlockd
from --admin-addr or ZLOCK_ADMIN.
`,
		Exits: []cli.Meaning{
			{Word: "0", Means: "done; run and elect exit with COMMAND's code, 128+N if signal N ended it"},
			{Word: "1", Means: "the answer is no, or the list is empty"},
			{Word: "2", Means: "check or break got no answer"},
			{Word: "3", Means: "wait-graph found a cycle"},
			{Word: "120", Means: "no usable session within --connect-timeout, or no answer within --timeout"},
			{Word: "121", Means: "revoked, and COMMAND stopped"},
			{Word: "122", Means: "the lock was lost while COMMAND ran"},
			{Word: "123", Means: "--max-hold reached"},
			{Word: "124", Means: "not acquired (-n, -w)"},
			{Word: "125", Means: "usage or internal error"},
			{Word: "126", Means: "COMMAND cannot be executed"},
			{Word: "127", Means: "COMMAND is not found"},
		},
		Commands: []*call.Command{
			run.Run(), run.Hold(), look.List(),
			look.Show(), look.Holders(), look.Waiters(), look.WaitGraph(), look.Check(),
			manage.Revoke(), manage.Break(), manage.Limit(), run.Elect(), look.Leader(),
			ticket.Take(), ticket.Renew(), ticket.Give(), ticket.List(), ticket.Agents(),
			look.Doctor(), manage.Member(), manage.RestartOrder(),
			look.Sessions(), look.Top(), manage.EndSession(), manage.Backup(), manage.Export(),
			manage.Restore(), node.Command(), node.PromptCommand(), manage.CA(), run.Guard(), run.Keep(),
		},
		OtherCommands: map[string]string{
			"lock": "run hold", "exec": "run", "flock": "run", "acquire": "hold", "list": "ls",
			"unlock": "break", "release": "break", "status": "show", "info": "show",
			"leaders": "leader", "election": "elect",
			"check-health": "doctor", "deadlock": "wait-graph",
		},
		OtherFlags: map[string]string{
			"p": "servers", "port": "servers", "server": "servers", "host": "servers", "addr": "servers",
			"wait": "timeout", "retry": "timeout", "ttl": "session-timeout", "mode": "shared", "read": "shared",
			"write": "exclusive", "user": "auth-file", "password": "auth-file", "h": "help",
		},
		Run: func(c *cli.Call, run func(*call.Call) error) error {
			err := run(&call.Call{App: a, Call: c})
			e, ok := errors.AsType[*call.SignalError](err)
			a.Interrupted = ok && e.Sig == syscall.SIGINT
			return err
		},
		Names: func(fs *pflag.FlagSet, dir string) []string {
			return connect.NamesBelow(a.Getenv, fs, dir)
		},
		Clean:  call.Clean,
		Usage:  call.ExitFailed,
		Failed: call.ExitFailed,
		Stdout: a.Stdout, Stderr: a.Stderr,
	}
}
