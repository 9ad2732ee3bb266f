package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/doctest"
	"github.com/zlockd/zlockd/test/expect"
)

// runMain runs zlockd's command line in this process.
func runMain(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := (&daemon{stdout: &out, stderr: &errs}).program().Main(args); code != exitOK || errs.Len() > 0 {
		t.Errorf("%v: %d %s", args, code, &errs)
	}
	return out.String()
}

// TestDocumentationHasTheFlags keeps docs/reference/flags.md from going stale.
func TestDocumentationHasTheFlags(t *testing.T) {
	var table strings.Builder
	new(daemon).program().MarkdownFlags(&table)
	doctest.Table(t, "../../docs/reference/flags.md", "go test ./cmd/zlockd -run Documentation -update-docs",
		table.String())
	for flag := range flagDetails {
		expect.Has(t, table.String(), "--"+flag, "details of the unknown flag %s", flag)
	}
}

func TestManualPages(t *testing.T) {
	for _, page := range []string{"zlockd.8", "zlockd.conf.5"} {
		doctest.Manual(t, page, runMain(t, "manual", page))
	}
}

// The shell gets flags, values and commands; the status tells it to take names of files.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"im", "import"}, {"--peer-tls-k", "--peer-tls-key"}, {"--log-format j", "json"},
		{"--log-format = j", "json"}, {"check --data-d", "--data-dir"}, {"dump --nod", "--nodes"},
		{"completion z", "zsh"}, {"--dev im", ""},
	} {
		out := runMain(t, append([]string{"__complete"}, strings.Fields(c.words)...)...)
		if word, _, _ := strings.Cut(out, "\t"); word != c.want || strings.Count(out, "\n") > 1 {
			t.Errorf("%s: %q, want %q", c.words, out, c.want)
		}
	}
	for _, words := range [][]string{{"--config", ""}, {"dump", ""}, {"restore", "--data-dir", "x"}} {
		var out bytes.Buffer
		d := &daemon{stdout: &out, stderr: &out}
		if d.program().Main(append([]string{"__complete"}, words...)) == exitOK || out.Len() > 0 {
			t.Errorf("%q is no name of a file: %s", words, &out)
		}
	}
}
