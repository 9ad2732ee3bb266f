// Package cli is the command line of zlockd and zlock. A [Program] is one table of commands and
// flags. From it come parsing, help, messages about mistakes, suggestions, completion and the manual
// pages; tests hold the tables of the documentation to it.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/release"
)

// Program is the table of a program. C is what the program's commands get to know of their call.
type Program[C any] struct {
	Name     string
	Does     string   // in a few words, for the help and the manual
	Synopsis []string // what follows the name
	About    string   // paragraphs for the manual
	Examples string
	Notes    string // at the end of the help
	See      string // other manual pages
	Exits    []Meaning
	Commands []*Command[C]
	// Groups are the flags that the program takes without a command.
	Groups func() []Group
	// Details say of some of them what the help leaves to the manual.
	Details map[string]string
	// OtherCommands and OtherFlags map words of other programs to those of this one.
	OtherCommands, OtherFlags map[string]string
	// Run runs a command on the program's view of the call.
	Run func(*Call, func(C) error) error
	// Plain runs the program without a command. If it is nil, a command is needed.
	Plain func(args []string) int
	// Names lists the nodes below a path on the server, for completion.
	Names func(flags *pflag.FlagSet, dir string) []string
	// Pages are further manual pages, by name and section.
	Pages map[string]func(io.Writer)
	// Clean makes text of other programs in messages harmless.
	Clean          func(string) string
	Usage, Failed  int // exit codes
	Stdout, Stderr io.Writer
}

// Command is a command of a program.
type Command[C any] struct {
	Name   string
	Args   string // operands, for the usage line
	Does   string // one line for the list of commands
	Help   string // what the usage line and the flags leave out
	Hidden bool
	// Paths marks operands as paths on the server, for completion.
	Paths bool
	// Words are the possible first operands, for completion.
	Words []string
	// Least and Most bound the number of operands; Most is -1 without a bound.
	Least, Most int
	// Runs says that the words after -- are a program to run, not operands.
	Runs bool
	// Prints are the objects that it prints with -o json, where the program itself makes them.
	Prints []any
	// ProgramFlags says that the command takes the program's own flags, and Setup adds none.
	ProgramFlags bool
	// Setup adds the command's flags to the set and returns the function that runs the command.
	Setup func(*pflag.FlagSet) func(C) error
	own   func(*Call) error // in place of Setup
}

// Group is a heading of the help and the flags below it.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// Meaning is what a word or a number stands for.
type Meaning struct{ Word, Means string }

// Call is one call of a command.
type Call struct {
	Name   string // of the command
	Raw    []string
	Args   []string // operands
	Dashed []string // the words after --, nil if there is no --
	Flags  *pflag.FlagSet
}

// Main runs the command line, args without the program's name, and returns the exit code.
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

// flags returns the program's own flags in one set.
func (p *Program[C]) flags() *pflag.FlagSet {
	fs := newFlags(p.Name)
	if p.Groups != nil {
		for _, g := range p.Groups() {
			fs.AddFlagSet(g.Flags)
		}
	}
	return fs
}

func (p *Program[C]) find(name string) *Command[C] {
	for _, c := range p.all() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// all returns the program's commands and those that every program has.
func (p *Program[C]) all() []*Command[C] {
	return append(p.Commands[:len(p.Commands):len(p.Commands)], p.completionCommand(), p.manualCommand())
}

// Shown returns the commands that the help lists.
func (p *Program[C]) Shown() (list []*Command[C]) {
	for _, c := range p.all() {
		if !c.Hidden {
			list = append(list, c)
		}
	}
	return list
}

func newFlags(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.Usage = func() {}
	return fs
}

// flagSet returns a command's flags, and the function that runs the command.
func (p *Program[C]) flagSet(c *Command[C]) (*pflag.FlagSet, func(*Call) error) {
	if c.ProgramFlags {
		run := c.Setup(newFlags(c.Name))
		return p.flags(), func(call *Call) error { return p.Run(call, run) }
	}
	fs := newFlags(c.Name)
	fs.BoolP("help", "h", false, "show this text")
	if c.own != nil {
		return fs, c.own
	}
	run := c.Setup(fs)
	return fs, func(call *Call) error { return p.Run(call, run) }
}

// run parses the command's arguments and runs the command.
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

// FlagError says in one sentence which flag is wrong, and why. others maps words of other programs
// to flags.
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

// NearFlag returns the flag of the set that a mistyped name probably means, or "".
func NearFlag(fs *pflag.FlagSet, name string, others map[string]string) string {
	if near := others[name]; near != "" && fs.Lookup(near) != nil {
		return near
	}
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return Nearest(name, known)
}

// near returns the command that a mistyped word probably means, or "".
func (p *Program[C]) near(word string) string {
	if near := p.OtherCommands[word]; near != "" {
		return near
	}
	var known []string
	for _, c := range p.Shown() {
		known = append(known, c.Name)
	}
	return Nearest(word, known)
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

// complain prints one message for each of the mistakes that err joins.
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
