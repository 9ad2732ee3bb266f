package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// large() returns a program with each kind of flag and operand. If `plain` is true, it also runs without a
// command.
func large(plain bool) *Program[*Call] {
	p := &Program[*Call]{Name: "large", Does: "does much",
		Groups: func() []Group {
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.SortFlags = false
			fs.BoolP("dev", "d", false, "in memory")
			fs.StringP("config", "c", "", "read `FILE`")
			fs.String("form", "text", "write `text|json`")
			fs.Int("id", 0, "number `N`")
			fs.Bool("secret", false, "not shown")
			fs.Lookup("secret").Hidden = true
			return []Group{{"All", fs}}
		},
		Run: func(c *Call, run func(*Call) error) error { return run(c) },
		Names: func(fs *pflag.FlagSet, dir string) []string {
			if server, _ := fs.GetString("server"); server == "down" {
				return nil
			}
			return map[string][]string{"": {"app", "a b", "zoo"}, "/app": {"x", "y"}}[dir]
		},
		OtherCommands: map[string]string{"list": "ls"}, OtherFlags: map[string]string{"memory": "dev", "z": "none"},
		Usage: 8, Failed: 9}
	tell := func(c *Call) error {
		fmt.Fprintf(p.Stdout, "%s %q %q %v", c.Name, c.Args, c.Dashed, c.Dashed == nil)
		return nil
	}
	if plain {
		p.Plain = func(args []string) int { fmt.Fprintf(p.Stdout, "plain %q", args); return 7 }
		p.Names = nil
	}
	p.Commands = []*Command[*Call]{
		{Name: "ls", Args: "PATH", Does: "list", Paths: true, Most: -1, Help: "\nAll of it.\n",
			Setup: func(fs *pflag.FlagSet) func(*Call) error {
				fs.StringP("server", "s", "", "`ADDR` to ask")
				fs.String("on-lost", "", "`WHAT` to do")
				fs.IntP("number", "n", 0, "how `MANY`")
				return tell
			}},
		{Name: "run", Args: "PATH -- COMMAND", Does: "run", Runs: true, Least: 1, Most: 1,
			Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
		{Name: "limit", Args: "PATH N", Does: "limit", Paths: true, Least: 2, Most: 2, Words: []string{"zero", "zebra"},
			Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
		{Name: "read", Args: "FILE", Does: "read", Most: 1, Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
		{Name: "wait", Args: "WHAT", Does: "wait", Most: 1, Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
		{Name: "check", Does: "check", ProgramFlags: true, Help: "Takes the program's flags.",
			Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
		{Name: "hidden", Does: "hide", Hidden: true, Words: []string{"word"}, Most: 1,
			Setup: func(*pflag.FlagSet) func(*Call) error { return tell }},
	}
	return p
}

// call() runs p and returns its exit code and what it wrote.
func call(p *Program[*Call], args ...string) (code int, out, complaints string) {
	var o, e strings.Builder
	p.Stdout, p.Stderr = &o, &e
	code = p.Main(args)
	return code, o.String(), e.String()
}

// The program returns the candidates for the last word. FILE stands for the answer that the word is the name
// of a file.
func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		plain bool
		words []string
		want  string // a line for each candidate with its meaning after a tab; or FILE
	}{
		{false, nil, "ls\tlist\nrun\trun\nlimit\tlimit\nread\tread\nwait\twait\ncheck\tcheck\n" +
			"completion\twrite the completion script of a shell\n"},
		{false, []string{"l"}, "ls\tlist\nlimit\tlimit\n"},
		{false, []string{"hid"}, ""},
		{false, []string{"hidden", ""}, ""},
		{false, []string{"nonsense", ""}, ""},
		{true, []string{"nonsense", "l"}, ""},
		{true, []string{"--d"}, "--dev\tin memory\n"},
		{true, []string{"-"}, "--dev\tin memory\n--config\tread FILE\n--form\twrite text|json\n--id\tnumber N\n"},
		{true, []string{"--dev", "--i"}, "--id\tnumber N\n"},
		{true, []string{"--form", ""}, "text\twrite text|json\njson\twrite text|json\n"},
		{true, []string{"--form", "j"}, "json\twrite text|json\n"},
		{true, []string{"--form=j"}, "--form=json\twrite text|json\n"},
		{true, []string{"--form", "=", "j"}, "json\twrite text|json\n"},
		{true, []string{"--form", "="}, "text\twrite text|json\njson\twrite text|json\n"},
		{true, []string{"--form", "=j"}, "json\twrite text|json\n"},
		{true, []string{"--id", ""}, ""},
		{true, []string{"--id="}, ""},
		{true, []string{"--none=x"}, ""},
		{true, []string{"none=x"}, ""},
		{true, []string{"--none", "l"}, ""}, // no command has this operand
		{true, []string{"--config", ""}, "FILE"},
		{true, []string{"-c", ""}, "FILE"},
		{true, []string{"-dc", ""}, "FILE"},
		{true, []string{"-d", "l"}, ""},
		{true, []string{"--config=x"}, ""}, // the shell itself completes after =
		{true, []string{"--dev", "l"}, ""},
		{true, []string{"check", "--d"}, "--dev\tin memory\n"},
		{true, []string{"check", "--form", "t"}, "text\twrite text|json\n"},
		{false, []string{"ls", "--on-lost", ""}, "term\tWHAT to do\nkill\tWHAT to do\nwarn\tWHAT to do\n"},
		{false, []string{"ls", "-s", ""}, ""},
		{false, []string{"ls", "--", "--s"}, ""},
		{false, []string{"ls", ""}, "/app\t\n/zoo\t\n"}, // a name that a shell would split is left out
		{false, []string{"ls", "/"}, "/app\t\n/zoo\t\n"},
		{false, []string{"ls", "/z"}, "/zoo\t\n"},
		{false, []string{"ls", "/app/"}, "/app/x\t\n/app/y\t\n"},
		{false, []string{"ls", "/app/y"}, "/app/y\t\n"},
		{false, []string{"ls", "z"}, ""},
		{false, []string{"ls", "--server", "down", "/"}, ""},
		{false, []string{"limit", "ze"}, "zero\t\nzebra\t\n"},
		// The words that the command offers are for its first operand only.
		{false, []string{"limit", "/app", "/z"}, "/zoo\t\n"},
		{false, []string{"read", ""}, "FILE"},
		{false, []string{"wait", ""}, ""},
		{true, []string{"wait", ""}, "FILE"}, // without Names the operand can be anything, also a file
		{false, []string{"check", ""}, ""},
		{false, []string{"completion", ""}, "bash\t\nzsh\t\nfish\t\n"},
		{false, []string{"completion", "z"}, "zsh\t\n"},
	} {
		code, out, _ := call(large(c.plain), append([]string{"__complete"}, c.words...)...)
		if code != 0 && out == "" {
			out = "FILE"
		}
		expect.Equal(t, out, c.want, "%v %q", c.plain, c.words)
	}
}

// Each shell has a script that calls the program by its name.
func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -F _large large\n", "zsh": "#compdef large\n",
		"fish": "complete -c large -f "} {
		code, out, _ := call(large(false), "completion", shell)
		expect.Equal(t, code, 0)
		expect.Has(t, out, want)
		expect.That(t, !strings.Contains(out, "PROGRAM"), "%s", out)
	}
	code, _, complaints := call(large(false), "completion", "csh")
	expect.Equal(t, code, 8)
	expect.Has(t, complaints, `there is no completion for "csh": want one of bash, zsh, fish`)
}

// The program finds its command by the first word, and explains a mistake.
func TestFirstWordsAndMistakes(t *testing.T) {
	for _, c := range []struct {
		plain      bool
		args       string
		code       int
		out        string // expected beginning of the output
		complaints string // expected part of the messages; empty: no message
	}{
		{true, "", 7, "plain []", ""},
		{true, "--dev", 7, `plain ["--dev"]`, ""},
		{true, "xyzzy", 7, `plain ["xyzzy"]`, ""},
		{true, "limti", 8, "", `unknown command "limti": did you mean "limit"?`},
		{false, "xyzzy", 8, "", "large: unknown command \"xyzzy\"\nTry 'large --help'.\n"},
		{false, "list", 8, "", `did you mean "ls"?`},
		{false, "help", 0, "\nDoes much.\n", ""},
		{false, "--help", 0, "\nDoes much.\n", ""},
		{false, "-h", 0, "\nDoes much.\n", ""},
		{false, "help ls", 0, "Usage: large ls [OPTIONS] PATH\n\nlist.\n\nAll of it.\n\nOptions:\n  -h, --help", ""},
		{false, "help nothing", 0, "\nDoes much.\n", ""},
		{false, "ls --help", 0, "Usage: large ls [OPTIONS] PATH\n\nlist.\n\nAll of it.\n\nOptions:\n", ""},
		{false, "wait -h", 0, "Usage: large wait [OPTIONS] WHAT\n\nwait.\n\nOptions:\n", ""},
		{false, "version", 0, "large ", ""},
		{false, "--version", 0, "large ", ""},
		{false, "ls", 0, "ls [] [] true", ""},
		{false, "ls a b", 0, `ls ["a" "b"] [] true`, ""},
		// This command runs no other program, so b is one of its operands.
		{false, "ls a -- b", 0, `ls ["a" "b"] [] true`, ""},
		{false, "run a -- b c", 0, `run ["a"] ["b" "c"] false`, ""},
		{false, "run a --", 0, `run ["a"] [] false`, ""},
		{false, "run a", 0, `run ["a"] [] true`, ""},
		{false, "run -- b", 8, "", "large: run: missing operand; usage: large run PATH -- COMMAND\n"},
		{false, "limit a", 8, "", "missing operand; usage: large limit PATH N\nTry 'large limit --help'.\n"},
		{false, "limit a b", 0, "limit", ""},
		{false, "limit a b c", 8, "", "too many operands; usage: large limit PATH N\n"},
		{false, "check --id 3", 0, "check", ""},
		{false, "check a", 8, "", "large: check: too many operands; usage: large check\n"},
		{false, "check --id many", 8, "", `--id "many": want a whole number`},
		{false, "check --dev=maybe", 8, "", `--dev "maybe": want true or false`},
		{false, "ls --number 1.5", 8, "", `--number "1.5": want a whole number`},
		{false, "ls --server", 8, "", "large: ls: --server needs a value\n"},
		{false, "ls --sever x", 8, "", "unknown flag --sever: did you mean --server?"},
		{false, "ls --xyzzy x", 8, "", "unknown flag --xyzzy\n"},
		{false, "check --memory", 8, "", "unknown flag --memory: did you mean --dev?"},
		{false, "check -z", 8, "", "unknown flag -z\n"}, // -z exists in other programs, but not in this one
		{false, "ls --memory", 8, "", "unknown flag --memory\n"},
		{false, "ls ---x", 8, "", "bad flag syntax: ---x"},
		{false, "hidden", 0, "hidden", ""},
	} {
		code, out, complaints := call(large(c.plain), strings.Fields(c.args)...)
		expect.Equal(t, code, c.code, "%s", c.args)
		expect.That(t, strings.HasPrefix(out, c.out) && (c.out != "" || out == ""), "%s: %q", c.args, out)
		expect.That(t, strings.Contains(complaints, c.complaints) && (c.complaints != "" || complaints == ""),
			"%s: %q", c.args, complaints)
	}
}

// The overview begins with the synopsis and ends with the exit codes. It has no empty parts.
func TestOverview(t *testing.T) {
	var out, complaints strings.Builder
	must.Equal(t, small(&out, &complaints).Main([]string{"help"}), 0)
	expect.Equal(t, out.String(), `Usage: small COMMAND
       small [FLAG]

Does little.

Examples:
small go
Speed:
  --quick
      hurry
  --secret
      not shown

Commands ('small COMMAND --help' shows the options of one):
  go            go to a place
  completion    write the completion script of a shell

A note.
Exit codes:
  0       done
  9       failed
`)
	out.Reset()
	(&Program[*Call]{Name: "bare", Does: "is", Exits: []Meaning{{"0", "done"}}}).Overview(&out)
	expect.Equal(t, out.String(), `
Is.

Commands ('bare COMMAND --help' shows the options of one):
  completion    write the completion script of a shell


Exit codes:
  0       done
`)
}

// The text of a flag is wrapped before column 80. It names the default, unless the default is an empty value.
func TestFlagText(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.StringP("long", "l", "here", "`NAME` "+strings.Repeat("1234567 ", 12)+"end")
	fs.Int("zero", 0, "much, 0 = none")
	fs.Int("none", 0, "much")
	fs.Bool("off", false, "is off")
	fs.String("own", "x", "as told (default y)")
	var b strings.Builder
	fs.VisitAll(func(f *pflag.Flag) { PrintFlag(&b, f) })
	expect.Equal(t, b.String(), `  -l, --long NAME
      NAME 1234567 1234567 1234567 1234567 1234567 1234567 1234567 1234567
      1234567 1234567 1234567 1234567 end (default here)
  --none int
      much
  --off
      is off
  --own string
      as told (default y)
  --zero int
      much, 0 = none (default 0)
`)
	exact := pflag.NewFlagSet("", pflag.ContinueOnError)
	exact.Bool("b", false, strings.Repeat("x", helpWidth-helpIndent-2)+" y z")
	b.Reset()
	PrintFlag(&b, exact.Lookup("b"))
	expect.List(t, strings.Split(b.String(), "\n")[1:3], []string{
		"      " + strings.Repeat("x", helpWidth-helpIndent-2) + " y", "      z"}, "a line may end at the bound")
}

// Besides the program's own manual page there are the pages in `Pages`.
func TestManualPages(t *testing.T) {
	p := large(true)
	code, out, _ := call(p, "manual")
	expect.Equal(t, code, 0)
	expect.Has(t, out, ".TH \"LARGE\" 8 ")
	expect.Has(t, out, ".SS \"large check\"\n.PP\nCheck.\n.PP\nTakes the program's flags.\n.SS", "its flags are the program's")
	expect.That(t, !strings.Contains(out, "EXAMPLES"), "%s", out)
	_, out, _ = call(large(false), "manual")
	expect.Has(t, out, ".TH \"LARGE\" 1 ")
	_, out, _ = call(p, "manual", "any") // the program has only one page, so any name finds it
	expect.Has(t, out, ".TH \"LARGE\" 8 ")

	p.Pages = map[string]func(io.Writer){"b.5": func(w io.Writer) { io.WriteString(w, "page b") }, "a.8": p.Manual}
	_, out, _ = call(p, "manual", "b.5")
	expect.Equal(t, out, "page b")
	code, _, complaints := call(p, "manual", "c.1")
	expect.Equal(t, code, 8)
	expect.Has(t, complaints, `there is no page "c.1": want one of a.8, b.5`)
}

// No text can become a request of roff, and no character is lost.
func TestTextIsSafeForRoff(t *testing.T) {
	for text, want := range map[string]string{
		".x\n.y a.b":  "\\&.x\n\\&.y a.b",
		"'x\n'y it's": "\\&'x\n\\&'y it's",
		`a\b`:         `a\eb`,
		"a-b \"c\"":   `a\-b \(dqc\(dq`,
		"a … ü\x7f":   "a ... \\[u00FC]\x7f",
	} {
		expect.Equal(t, escape(text), want)
	}
	var b strings.Builder
	Page{&b}.Text("\n\none\n\n\n\n  two\n\nthree  3\n\n")
	expect.Equal(t, b.String(), ".PP\none\n.PP\n.nf\n  two\n.fi\n.PP\n.nf\nthree  3\n.fi\n")
}

// Manual and documentation list each command that is not hidden, and each flag with its details and default.
func TestListsOfCommandsAndFlags(t *testing.T) {
	var out, complaints, list strings.Builder
	p := small(&out, &complaints)
	for _, c := range p.Shown() {
		fmt.Fprintln(&list, c.Name, c.Args, c.Does)
	}
	for _, fs := range []*pflag.FlagSet{p.flags(), large(true).flags()} {
		for _, l := range p.FlagList(fs) {
			fmt.Fprintf(&list, "%s: %s\n", l.Word, l.Means)
		}
	}
	expect.Equal(t, list.String(), `go PLACE go to a place
completion bash|zsh|fish write the completion script of a shell
--quick: hurry. It tires.
-d, --dev: in memory
-c, --config FILE: read FILE
--form text|json: write text|json (default text)
--id N: number N
`)
}
