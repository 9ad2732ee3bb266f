package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An error decides the exit code and the text that the program writes.
func TestErrorsBecomeExitCodes(t *testing.T) {
	const try = "Try 'large cmd --help'.\n"
	for _, c := range []struct {
		err  error
		code int
		told string
		is2  bool // whether HasCode(err, 2) is true
	}{
		{nil, 0, "", false},
		{Exit(0), 0, "", false},
		{Exit(2), 2, "", true},
		{Exitf(2, "no %s: %w", "room", io.EOF), 2, "large: cmd: no room: EOF\n", true},
		{Exitf(3, "no"), 3, "large: cmd: no\n", false},
		{Usagef("wrong: %w", io.EOF), 8, "large: cmd: wrong: EOF\n" + try, false},
		{Mistake(errors.Join(io.EOF, io.ErrClosedPipe)), 8, "large: cmd: EOF\nlarge: cmd: io: read/write on closed pipe\n" +
			try, false},
		{fmt.Errorf("outer: %w", Usagef("inner")), 8, "large: cmd: outer: inner\n" + try, false},
		{fmt.Errorf("outer: %w", Exit(2)), 2, "", true},
		// The Usagef error decides the exit code, not the 2.
		{&ExitError{2, Usagef("mistake")}, 8, "large: cmd: mistake\n" + try, false},
		{io.EOF, 9, "large: cmd: EOF\n", false},
	} {
		var complaints strings.Builder
		p := large(false)
		p.Stderr = &complaints
		code := p.Report("cmd", c.err)
		expect.Equal(t, code, c.code, "%v", c.err)
		expect.Equal(t, complaints.String(), c.told, "%v", c.err)
		expect.Equal(t, HasCode(c.err, 2), c.is2, "%v", c.err)
	}
	expect.Is(t, Exitf(2, "x: %w", io.EOF), io.EOF)
	expect.Is(t, Usagef("x: %w", io.EOF), io.EOF)
	expect.Equal(t, Exit(5).Error(), "exit 5")
	expect.Equal(t, Exitf(5, "why").Error(), "why")
}

// Each JSON object names the version of the answer format once, as its first field.
func TestAnswersInJSON(t *testing.T) {
	for _, c := range []struct {
		object any
		want   string
	}{
		{struct{}{}, `{"v":1}`},
		{struct {
			A int `json:"a"`
		}{3}, `{"v":1,"a":3}`},
		{struct {
			V int `json:"v"`
		}{2}, `{"v":2}`},
	} {
		var b strings.Builder
		must.OK(t, WriteJSON(&b, c.object))
		expect.Equal(t, b.String(), c.want+"\n")
	}
	expect.Fails(t, WriteJSON(io.Discard, func() {}), "a function in JSON")
	r, w := io.Pipe()
	r.Close()
	expect.Is(t, WriteJSON(w, struct{}{}), io.ErrClosedPipe)
}

// The first format is the default. A flag can set only the formats of the command.
func TestOutputFormats(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	format := AddOutput(fs, "form", "table", "json")
	expect.Equal(t, *format, "table")
	must.OK(t, fs.Parse([]string{"-o", "json"}))
	expect.Equal(t, *format, "json")
	expect.Fails(t, fs.Set("output", "xml"))
	expect.Equal(t, *format+" "+fs.Lookup("output").Value.Type(), "json table|json")
}

// A file of secrets has one secret on each line. No error repeats a line of it.
func TestFileWithSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth")
	for _, c := range []struct {
		text    string
		mode    os.FileMode
		want    string
		exposed bool
		fails   string
	}{
		{"digest:ann:secret\n", 0o600, "digest ann:secret;", false, ""},
		{"# a comment\n\n \t digest:a:b \r\nsasl:", 0o640, "digest a:b;sasl ;", true, ""},
		{"ip:\n", 0o604, "ip ;", true, ""},
		{"ip:\n", 0o622, "ip ;", false, ""}, // others may write the file, but not read it
		{"secret\n", 0o600, "", false, "a line does not have the form SCHEME:SECRET"},
		{"digest:a:b\n:secret\n", 0o644, "", true, "a line does not have the form SCHEME:SECRET"},
		{"# nothing\n", 0o644, "", true, "auth is empty"},
		{"", 0o600, "", false, "auth is empty"},
	} {
		must.OK(t, os.WriteFile(file, []byte(c.text), 0o600))
		must.OK(t, os.Chmod(file, c.mode))
		list, exposed, err := ReadAuth(file)
		var got strings.Builder
		for _, a := range list {
			fmt.Fprintf(&got, "%s %s;", a.Scheme, a.Secret)
		}
		expect.Equal(t, got.String(), c.want, "%q", c.text)
		expect.Equal(t, exposed, c.exposed, "%q", c.text)
		if c.fails == "" {
			expect.OK(t, err, "%q", c.text)
		} else {
			if expect.Fails(t, err, "%q", c.text) {
				expect.That(t, strings.HasSuffix(err.Error(), c.fails), "%q: %v", c.text, err)
				expect.Lacks(t, err.Error(), "secret", "%q", c.text)
			}
		}
	}
	_, _, err := ReadAuth(file + "no")
	expect.Is(t, err, os.ErrNotExist)
}
