package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/release"
	"github.com/zlockd/zlockd/cmd/internal/suggest"
)

// command is a subcommand.
type command struct {
	name string
	args string // operands, for the usage line
	does string // one line for the list of commands
	help string // what the usage line and the flags leave out
	// paths marks operands as paths on the server, for completion.
	paths bool
	// hidden commands serve zlock itself.
	hidden bool
	// subs are the possible words of the first operand, for completion.
	subs []string
	// setup adds the command's flags to the set and returns the function that runs the command.
	setup func(fs *pflag.FlagSet) func(*call) error
}

// call is one invocation of a command.
type call struct {
	*app
	cmd    *command
	fs     *pflag.FlagSet
	args   []string // operands before --
	dashed []string // what follows --, nil if there is no --
}

// app is the process as its commands see it.
type app struct {
	stdin          *os.File
	stdout, stderr io.Writer
	terminal       bool // standard output is a terminal
	getenv         func(string) string
}

// commands returns the commands in the order of the help text.
func commands() []*command {
	return []*command{
		runCommand(), holdCommand(), lsCommand(), showCommand(), holdersCommand(), waitersCommand(),
		waitGraphCommand(), checkCommand(), revokeCommand(), breakCommand(), limitCommand(), electCommand(),
		leaderCommand(),
		barrierCommand(), doctorCommand(), memberCommand(), restartOrderCommand(), sessionsCommand(), topCommand(),
		endSessionCommand(), backupCommand(), exportCommand(), restoreCommand(), completionCommand(),
		guardCommand(), keepCommand(),
	}
}

func findCommand(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// flagSet returns the command's flag set, and the function that runs the command.
func (c *command) flagSet() (*pflag.FlagSet, func(*call) error) {
	fs := pflag.NewFlagSet("zlock "+c.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.Usage = func() {}
	fs.BoolP("help", "h", false, "show this text")
	return fs, c.setup(fs)
}

// usage writes the command's help.
func (c *command) usage(w io.Writer, fs *pflag.FlagSet) {
	fmt.Fprintf(w, "%s\n\n%s.\n", strings.TrimSpace("Usage: zlock "+c.name+" [OPTIONS] "+c.args), c.does)
	if c.help != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.help))
	}
	fmt.Fprintf(w, "\nOptions:\n%s", fs.FlagUsagesWrapped(100))
}

// main runs the command line, args without the program's name, and returns the exit code.
func (a *app) main(args []string) int {
	if len(args) == 0 {
		a.overview(a.stderr)
		return exitFailed
	}
	switch name := args[0]; name {
	case "--help", "-h", "help":
		if len(args) > 1 && name == "help" {
			if c := findCommand(args[1]); c != nil {
				fs, _ := c.flagSet()
				c.usage(a.stdout, fs)
				return exitOK
			}
		}
		a.overview(a.stdout)
		return exitOK
	case "--version", "version":
		fmt.Fprintf(a.stdout, "zlock %s\n", release.Version())
		return exitOK
	}
	c := findCommand(args[0])
	if args[0] == "__complete" {
		a.complete(args[1:]) // whatever the words are
		return exitOK
	}
	if c == nil {
		a.say("unknown command %q%s; 'zlock --help' lists them", args[0], meantCommand(args[0]))
		return exitFailed
	}
	return a.report(c, a.run(c, args[1:]))
}

// run parses the command's arguments and runs it.
func (a *app) run(c *command, args []string) error {
	fs, run := c.flagSet()
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			c.usage(a.stdout, fs)
			return nil
		}
		return &usageError{err.Error() + meantFlag(fs, err)}
	}
	if help, _ := fs.GetBool("help"); help {
		c.usage(a.stdout, fs)
		return nil
	}
	cl := &call{app: a, cmd: c, fs: fs, args: fs.Args()}
	if n := fs.ArgsLenAtDash(); n >= 0 {
		cl.args, cl.dashed = fs.Args()[:n], append([]string{}, fs.Args()[n:]...)
	}
	return run(cl)
}

// otherWords maps words of other programs to our commands.
var otherWords = map[string]string{
	"lock": "run", "exec": "run", "flock": "run", "acquire": "hold", "list": "ls", "unlock": "break",
	"release": "break", "status": "show",
	"info": "show", "leaders": "leader", "election": "elect", "check-health": "doctor", "deadlock": "wait-graph",
}

var otherFlags = map[string]string{
	"p": "servers", "port": "servers", "server": "servers", "host": "servers", "h": "help", "addr": "servers",
	"wait": "timeout", "mode": "shared",
	"read": "shared", "write": "exclusive", "retry": "timeout", "ttl": "session-timeout", "user": "auth-file",
	"password": "auth-file",
}

// meantCommand returns a suggestion, or "".
func meantCommand(word string) string {
	if word == "lock" {
		return `: did you mean "run" or "hold"?`
	}
	near := otherWords[word]
	if near == "" {
		var known []string
		for _, c := range commands() {
			if !c.hidden {
				known = append(known, c.name)
			}
		}
		near = suggest.Nearest(word, known)
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", near)
}

// meantFlag returns a suggestion if the error is an unknown flag.
func meantFlag(fs *pflag.FlagSet, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	name := unknown.GetSpecifiedName()
	near := otherFlags[name]
	if near == "" || fs.Lookup(near) == nil {
		var known []string
		fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		near = suggest.Nearest(name, known)
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean --%s?", near)
}

// report prints an error and returns its exit code.
func (a *app) report(c *command, err error) int {
	var u *usageError
	var e *exitError
	switch {
	case err == nil:
	case errors.As(err, &u):
		a.say("%s: %v\nTry 'zlock %s --help'.", c.name, u, c.name)
	case errors.As(err, &e) && e.err == nil:
	default:
		a.say("%s: %v", c.name, clean(err.Error()))
	}
	return codeOf(err)
}

// say writes a message to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, "zlock: "+format+"\n", args...)
}

func (a *app) overview(w io.Writer) {
	fmt.Fprint(w, "Usage: zlock COMMAND [OPTIONS] …\n\nRun programs under distributed locks, and look after "+
		"the locks.\n\nCommands:\n")
	for _, c := range commands() {
		if !c.hidden {
			fmt.Fprintf(w, "  %-13s %s\n", c.name, c.does)
		}
	}
	fmt.Fprint(w, "\n'zlock COMMAND --help' shows a command's options. The servers are taken from\n--servers "+
		"or ZLOCK_SERVERS (127.0.0.1:2181 if neither is given).\n")
}

// operands checks the number of operands; those after -- count too.
func (c *call) operands(least, most int) error {
	if c.dashed != nil {
		c.args = append(c.args, c.dashed...)
		c.dashed = nil
	}
	switch {
	case len(c.args) < least:
		return usagef("missing operand; usage: zlock %s %s", c.cmd.name, c.cmd.args)
	case most >= 0 && len(c.args) > most:
		return usagef("too many operands; usage: zlock %s %s", c.cmd.name, c.cmd.args)
	}
	return nil
}
