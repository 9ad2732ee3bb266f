package cli

import (
	"io"

	"github.com/spf13/pflag"
)

// Program describes a program: its commands, its flags and its texts. C is the type of the call that the
// program's commands get.
type Program[C any] struct {
	Name     string
	Does     string   // the purpose in a few words, for the help and the manual
	Synopsis []string // operands and options after the name
	About    string   // paragraphs for the manual
	Examples string
	Notes    string // text at the end of the help
	See      string // other manual pages to which the program's page refers
	Exits    []Meaning
	Commands []*Command[C]
	// Groups are the program's own flags: those that it takes without a command.
	Groups func() []Group
	// Details describe some of the flags for the manual; the help omits these texts.
	Details map[string]string
	// OtherCommands and OtherFlags map names that other programs use for a command or flag to the name here.
	OtherCommands, OtherFlags map[string]string
	// Run prepares what a command needs, a C, from the call. It passes that to the function, which runs the
	// command.
	Run func(*Call, func(C) error) error
	// Plain runs the program without a command. If it is nil, a command is needed.
	Plain func(args []string) int
	// Names lists the nodes below a path on the server, for completion.
	Names func(flags *pflag.FlagSet, dir string) []string
	// Pages are further manual pages, by name and section.
	Pages map[string]func(io.Writer)
	// Clean makes text from other programs harmless, for example for the terminal, before a message shows it.
	Clean          func(string) string
	Usage, Failed  int // exit codes for a mistake in the command line, and for another failure
	Stdout, Stderr io.Writer
}

// Command is a command of a program.
type Command[C any] struct {
	Name   string
	Args   string // operands, for the usage line
	Does   string // one line for the list of commands
	Help   string // text beyond the usage line and the flags
	Hidden bool
	// Paths marks operands as paths on the server, for completion.
	Paths bool
	// Words are the possible first operands, for completion.
	Words []string
	// Least and Most bound the number of operands; Most is -1 without a limit.
	Least, Most int
	// Runs says that the words after -- are a command line to run, and not operands.
	Runs bool
	// Prints has an object of each type that the command prints with -o json. It is empty if the command only
	// passes on what a server sends.
	Prints []any
	// ProgramFlags says that the command takes the same flags as the program itself. Then Setup adds no others.
	ProgramFlags bool
	// Setup adds the command's flags to the set and returns the function that runs the command.
	Setup func(*pflag.FlagSet) func(C) error
	own   func(*Call) error // used instead of Setup
}

// Group is a heading of the help and the flags below it.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// Meaning explains a word or a number.
type Meaning struct{ Word, Means string }

// Call is one call of a command.
type Call struct {
	Name   string // name of the command
	Raw    []string
	Args   []string // operands
	Dashed []string // the words after --, nil if there is no --
	Flags  *pflag.FlagSet
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

// all() returns the program's commands and the commands of every program.
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
