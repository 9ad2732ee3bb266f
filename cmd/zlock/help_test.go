package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// The help texts of options start in one column, and no line ends with a space.
func TestHelpIsInColumns(t *testing.T) {
	for _, c := range program(new(call.App)).Commands {
		var out strings.Builder
		program(&call.App{Stdout: &out, Stderr: &out}).Main([]string{c.Name, "--help"})
		_, options, _ := strings.Cut(out.String(), "\nOptions:\n")
		column := 0
		for line := range strings.Lines(options) {
			line = strings.TrimRight(line, "\n")
			if text := strings.TrimLeft(line, " "); strings.HasPrefix(text, "-") &&
				len(line)-len(text) <= len("  -h, ") {
				gap := strings.Index(text, "   ")
				if gap < 0 {
					t.Errorf("%s: %q", c.Name, line)
					continue
				}
				at := utf8.RuneCountInString(line[:len(line)-len(strings.TrimLeft(text[gap:], " "))])
				if column == 0 {
					column = at
				}
				expect.Equal(t, at, column, "%s: column %d in place of %d: %q", c.Name, at, column, line)
			}
		}
		for line := range strings.Lines(out.String()) {
			expect.That(t, !strings.HasSuffix(line, " \n"), "%s: a space ends %q", c.Name, line)
		}
	}
}

var shownDefault = regexp.MustCompile(`\((?:[A-Z_]+; )?default:? ([^)]*)\)`)

// byHand lists the flags whose help text names the default in its own words. For each flag it has the default
// that zlock uses.
var byHand = map[string]string{
	"servers":         "127.0.0.1:2181",
	"admin-addr":      "127.0.0.1:8181",
	"layout":          client.LayoutCurator.String(),
	"tls-ca":          "the system's",
	"tls-server-name": "each server's own",
	"on-revoke":       "TERM with --revocable, else none",
	"foreground":      "if standard input is a terminal",
}

// Each default in a help text is the one that zlock uses. All defaults are shown, except empty ones.
func TestHelpShowsTheDefaultsInForce(t *testing.T) {
	for _, c := range program(new(call.App)).Commands {
		if c.Hidden {
			continue
		}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Setup(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			one := pflag.NewFlagSet("", pflag.ContinueOnError)
			one.AddFlag(f)
			shown := ""
			if m := shownDefault.FindStringSubmatch(one.FlagUsages()); m != nil {
				shown = strings.Trim(m[1], `"`)
			}
			if want, ok := byHand[f.Name]; ok {
				expect.That(t, strings.HasSuffix(shown, want),
					"%s --%s: default %q, want %q", c.Name, f.Name, shown, want)
				return
			}
			force := f.Value.String()
			if force == "false" || force == "0" || force == "[]" {
				force = ""
			}
			expect.Equal(t, shown, force, "%s --%s: default %q, in force", c.Name, f.Name, shown)
		})
	}
}

// Completion of a path offers only names that the shell takes literally, because any client may choose the
// name of a node.
func TestCompletionOffersNothingThatAShellWouldRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	env := scriptEnv(t)
	chroot := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "ZLOCK_CHROOT="); ok {
			chroot = v
		}
	}
	c := must.Get(zk.Dial(ctx, server(t), zk.Options{}))(t)
	defer c.Close(ctx)
	create := func(path string) {
		t.Helper()
		must.OK(t, expect.Err(c.Create(ctx, zk.Create{Path: path})), "%q", path)
	}
	create(chroot)
	create(chroot + "/jobs")
	for r := rune(' '); r < 0x7f; r++ {
		if r != '/' {
			create(chroot + "/jobs/a" + string(r) + "b")
		}
	}
	create(chroot + "/jobs/-rf")
	create(chroot + "/jobs/nächtlich")
	create(chroot + "/jobs/a\u00a0b")

	zlock := exec.CommandContext(ctx, built.dir+"/zlock", "__complete", "show", "/jobs/")
	zlock.Env = env
	out := must.Get(zlock.Output())(t)
	offered := strings.Fields(string(out))
	expect.That(t, len(offered) >= 26+26+10, "only %d names are offered: %q", len(offered), offered)
	expect.Has(t, string(out), "nächtlich", "only %d names are offered: standard output", len(offered))
	for _, word := range offered {
		// The shell must take the offered word as the name itself.
		for _, shell := range []string{"sh", "bash"} {
			got, err := exec.CommandContext(ctx, shell, "-c", "printf %s "+word).CombinedOutput()
			expect.OK(t, err, "%s takes %q for %q", shell, word, got)
			expect.Equal(t, string(got), word, "%s takes %q for %q", shell, word, got)
		}
		expect.That(t, !strings.ContainsAny(word, "!^~#=[]{}*?$`;&|<>()'\"\\ "), "%q is offered", word)
	}
}

func TestManualPage(t *testing.T) {
	page, errs, code := runIn(t, nil, "manual")
	must.Equal(t, code, 0, "exit code; it says %s", errs)
	must.Equal(t, errs, "", "standard error")
	golden.Manual(t, "zlock.1", page)
}

// docs/zlock.md lists exactly the commands of the program.
func TestDocumentationHasTheCommands(t *testing.T) {
	const command = "go test ./cmd/zlock -run Documentation -update-docs"
	p := program(new(call.App))
	commands, exits := "| command | what it does |\n|---|---|\n", "| exit code | meaning |\n|---|---|\n"
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	for _, c := range p.Shown() {
		commands += fmt.Sprintf("| `%s` | %s |\n", cell(strings.TrimSpace(c.Name+" "+c.Args)), cell(c.Does))
	}
	for _, e := range p.Exits {
		exits += fmt.Sprintf("| %s | %s |\n", e.Word, cell(e.Means))
	}
	golden.Table(t, "../../docs/zlock.md", command, commands)
	golden.Table(t, "../../docs/zlock.md", command+", exit codes", exits)
}
