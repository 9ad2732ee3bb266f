package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/test/expect"
)

// small() is a program with a group of flags and two commands.
func small(out, complaints *strings.Builder) *Program[string] {
	level := "low"
	return &Program[string]{Name: "small", Does: "does little", Synopsis: []string{"COMMAND", "[FLAG]"},
		About: "About it.\n\n  kept  as is", Examples: "small go", Notes: "A note.", See: "large(1)",
		Exits: []Meaning{{"0", "done"}, {"9", "failed"}},
		Groups: func() []Group {
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.Bool("quick", false, "hurry")
			fs.Bool("secret", false, "not shown")
			fs.Lookup("secret").Hidden = true
			return []Group{{"Speed", fs}}
		},
		Details: map[string]string{"quick": "It tires."},
		Commands: []*Command[string]{
			{Name: "go", Args: "PLACE", Does: "go to a place", Help: "It takes a while.", Least: 1, Most: 1,
				Setup: func(fs *pflag.FlagSet) func(string) error {
					fs.Var(NewChoice(&level, "low", "high"), "level", "how high")
					return func(place string) error {
						if place == "nowhere" {
							return errors.Join(errors.New("no way\x1b"), Usagef("go elsewhere\x1b"))
						}
						out.WriteString(place + " " + level)
						return nil
					}
				}},
			{Name: "hide", Does: "hide", Hidden: true, Setup: func(*pflag.FlagSet) func(string) error { return nil }},
		},
		Run:   func(c *Call, run func(string) error) error { return run(c.Args[0]) },
		Clean: func(s string) string { return strings.ReplaceAll(s, "\x1b", "?") },
		Usage: 8, Failed: 9, Stdout: out, Stderr: complaints}
}

func TestManualHasEveryPart(t *testing.T) {
	var page, out, complaints strings.Builder
	small(&out, &complaints).Manual(&page)
	_, text, _ := strings.Cut(page.String(), "\n") // leave out the first line, which has the release
	expect.Equal(t, text, `.SH NAME
small \- does little
.SH SYNOPSIS
\fBsmall\fR COMMAND
.br
\fBsmall\fR [FLAG]
.SH DESCRIPTION
.PP
About it.
.PP
.nf
  kept  as is
.fi
.SH OPTIONS
.SS "Speed"
.TP
\fB\-\-quick\fR
hurry. It tires.
.SH COMMANDS
.SS "small go PLACE"
.PP
Go to a place.
.PP
It takes a while.
.TP
\fB\-h, \-\-help\fR
show this text
.TP
\fB\-\-level low|high\fR
how high (default low)
.SS "small completion bash|zsh|fish"
.PP
Write the completion script of a shell.
.PP
.nf
For bash:  source <(small completion bash)
For zsh:   small completion zsh > \(dq${fpath[1]}/_small\(dq
For fish:  small completion fish > ~/.config/fish/completions/small.fish
.fi
.TP
\fB\-h, \-\-help\fR
show this text
.SH EXAMPLES
.PP
.nf
small go
.fi
.SH NOTES
.PP
A note.
.SH EXIT STATUS
.TP
\fB0\fR
done
.TP
\fB9\fR
failed
.SH SEE ALSO
.PP
large(1)
`)
}

// Each call prints the expected text and has the expected exit code.
func TestCallsOfAProgram(t *testing.T) {
	for _, c := range []struct {
		args            string
		code            int
		out, complaints string
	}{
		{"go home", 0, "home low", ""},
		{"go --level high home", 0, "home high", ""},
		{"go --level=higher home", 8, "", "must be one of low, high"},
		{"go nowhere", 8, "", "small: go: no way?\nsmall: go: go elsewhere?\n"},
		{"go", 8, "", "small: go: "},
		{"go home now", 8, "", "small: go: "},
		{"go --hurry home", 8, "", "--hurry"},
		{"goo home", 8, "", `"go"`},
		{"", 8, "", "Does little"},
	} {
		var out, complaints strings.Builder
		code := small(&out, &complaints).Main(strings.Fields(c.args))
		expect.Equal(t, code, c.code, "%s: %s", c.args, &complaints)
		expect.Equal(t, out.String(), c.out, "%s", c.args)
		expect.Has(t, complaints.String(), c.complaints, "%s", c.args)
	}
}
