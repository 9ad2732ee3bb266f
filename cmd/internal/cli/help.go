package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Overview writes the program's help.
func (p *Program[C]) Overview(w io.Writer) {
	for i, s := range p.Synopsis {
		fmt.Fprintf(w, "%s %s\n", []string{"Usage: " + p.Name, "       " + p.Name}[min(i, 1)], s)
	}
	fmt.Fprintf(w, "\n%s.\n", sentence(p.Does))
	if p.Examples != "" {
		fmt.Fprintf(w, "\nExamples:\n%s", p.Examples)
	}
	if p.Groups != nil {
		for _, g := range p.Groups() {
			fmt.Fprintf(w, "\n%s:\n", g.Title)
			g.Flags.VisitAll(func(f *pflag.Flag) { PrintFlag(w, f) })
		}
	}
	fmt.Fprintf(w, "\nCommands ('%s COMMAND --help' shows the options of one):\n", p.Name)
	for _, c := range p.Shown() {
		fmt.Fprintf(w, "  %-13s %s\n", c.Name, c.Does)
	}
	fmt.Fprintf(w, "\n%s", p.Notes)
	for i, e := range p.Exits {
		fmt.Fprintf(w, "%s%-7s %s\n", []string{"\nExit codes:\n  ", "  "}[min(i, 1)], e.Word, e.Means)
	}
}

// help() writes the help of a command.
func (p *Program[C]) help(w io.Writer, c *Command[C]) {
	fmt.Fprintf(w, "%s\n\n%s.\n", strings.TrimSpace("Usage: "+p.Name+" "+c.Name+" [OPTIONS] "+c.Args), c.Does)
	if c.Help != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.Help))
	}
	if !c.ProgramFlags {
		fs, _ := p.flagSet(c)
		fmt.Fprintf(w, "\nOptions:\n%s", fs.FlagUsagesWrapped(100))
	}
}

// sentence() begins a text with a capital letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// helpWidth is the column at which texts of a program's own flags are wrapped; helpIndent is the
// column at which they begin.
const (
	helpWidth  = 79
	helpIndent = 6
)

// PrintFlag writes a flag and the name of its value on one line, and its effect and default below.
func PrintFlag(w io.Writer, f *pflag.Flag) {
	name, text := FlagText(f)
	fmt.Fprintf(w, "  %s\n", name)
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && helpIndent+len(line)+1+len(word) > helpWidth {
			fmt.Fprintf(w, "%*s%s\n", helpIndent, "", line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintf(w, "%*s%s\n", helpIndent, "", line)
}

// FlagText returns a flag with the name of its value, and the text about its effect and default.
func FlagText(f *pflag.Flag) (name, does string) {
	value, does := pflag.UnquoteUsage(f)
	name = "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
	}
	switch def := f.DefValue; {
	case def == "", def == "false", strings.Contains(does, "(default"),
		def == "0" && !strings.Contains(does, "0 = "):
	default:
		does += " (default " + def + ")"
	}
	return name, does
}
