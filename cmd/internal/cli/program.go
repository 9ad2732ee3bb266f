// Package cli is the command line of zlockd and zlock. A [Program] is one table of commands and flags. The
// package derives from it the parser, help, messages about mistakes, suggestions, completion and manual
// pages. Tests compare this table with the tables of the documentation.
package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/release"
)

// Main runs a command line and returns the exit code. `args` does not contain the program's name.
func (p *Program[C]) Main(args []string) int {
	if len(args) == 0 && p.Plain == nil {
		p.Overview(p.Stderr)
		return p.Usage
	}
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	c := p.find(first)
	switch {
	case c != nil:
		return p.Report(c.Name, p.run(c, args[1:]))
	case first == "__complete":
		if !p.complete(args[1:]) {
			return 1
		}
		return 0
	case first == "help" && len(args) > 1 && p.find(args[1]) != nil:
		p.help(p.Stdout, p.find(args[1]))
		return 0
	case first == "help" || first == "--help" || first == "-h":
		p.Overview(p.Stdout)
		return 0
	case first == "version" || first == "--version":
		fmt.Fprintf(p.Stdout, "%s %s\n", p.Name, release.Version())
		return 0
	case p.Plain != nil && (strings.HasPrefix(first, "-") || p.near(first) == ""):
		return p.Plain(args)
	}
	meant := ""
	if near := p.near(first); near != "" {
		meant = ": did you mean \"" + strings.Join(strings.Fields(near), "\" or \"") + "\"?"
	}
	return p.Report("", Usagef("unknown command %q%s", first, meant))
}

// run() parses the command's arguments and runs the command.
func (p *Program[C]) run(c *Command[C], args []string) error {
	fs, run := p.flagSet(c)
	if err := fs.Parse(args); err != nil {
		return FlagError(fs, err, p.OtherFlags)
	}
	if help, _ := fs.GetBool("help"); help {
		p.help(p.Stdout, c)
		return nil
	}
	call := &Call{Name: c.Name, Raw: args, Args: fs.Args(), Flags: fs}
	if n := fs.ArgsLenAtDash(); n >= 0 && c.Runs {
		call.Args, call.Dashed = fs.Args()[:n], append([]string{}, fs.Args()[n:]...)
	}
	usage := strings.TrimSpace(p.Name + " " + c.Name + " " + c.Args)
	switch n := len(call.Args); {
	case n < c.Least:
		return Usagef("missing operand; usage: %s", usage)
	case c.Most >= 0 && n > c.Most:
		return Usagef("too many operands; usage: %s", usage)
	}
	return run(call)
}

// FlagError describes in one sentence which flag is wrong, and why. `others` maps names that other programs
// use for a flag to the flag's name here.
func FlagError(fs *pflag.FlagSet, err error, others map[string]string) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f, why := e.GetFlag(), e.Unwrap().Error()
		switch f.Value.Type() {
		case "bool":
			why = "want true or false"
		case "int", "int64", "uint32":
			why = "want a whole number"
		}
		return Usagef("--%s %q: %s", f.Name, e.GetValue(), why)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return Usagef("--%s needs a value", e.GetSpecifiedName())
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name, dashes := e.GetSpecifiedName(), "--"
		if e.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		if near := NearFlag(fs, name, others); near != "" {
			return Usagef("unknown flag %s%s: did you mean --%s?", dashes, name, near)
		}
		return Usagef("unknown flag %s%s", dashes, name)
	}
	return Usagef("%v", err)
}

// Report prints an error and returns its exit code.
func (p *Program[C]) Report(command string, err error) int {
	_, usage := errors.AsType[*UsageError](err)
	e, exit := errors.AsType[*ExitError](err)
	switch {
	case err == nil:
		return 0
	case usage:
		p.complain(command, err)
		fmt.Fprintf(p.Stderr, "Try '%s --help'.\n", strings.TrimSpace(p.Name+" "+command))
		return p.Usage
	case exit && e.Err != nil:
		p.complain(command, e.Err)
		return e.Code
	case exit:
		return e.Code
	}
	p.complain(command, err)
	return p.Failed
}

// complain() prints one message for each mistake; err may join several.
func (p *Program[C]) complain(command string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			p.complain(command, e)
		}
		return
	}
	if u, ok := err.(*UsageError); ok { //nolint:errorlint // texts around a mistake are part of the message
		p.complain(command, u.error)
		return
	}
	text := err.Error()
	if p.Clean != nil {
		text = p.Clean(text)
	}
	if command != "" {
		text = command + ": " + text
	}
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, text)
}
