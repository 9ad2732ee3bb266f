package call

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/server/view/answer"
)

// Output formats: table for people, plain for cut and awk (tab separated, no header, new columns only at the
// end), json with one object per line.
const (
	Table = "table"
	JSON  = "json"
	Plain = "plain"
)

// AddFormat adds -o.
func AddFormat(fs *pflag.FlagSet) *string {
	return cli.AddOutput(fs, "table, json (one object per line) or plain (tab separated)",
		Table, JSON, Plain)
}

// Printer writes rows in one of the formats.
type Printer struct {
	w      io.Writer
	Format string
	bold   bool
	header []string
	table  *tabwriter.Writer // collects the rows of a table, and writes to text; nil: no rows yet
	text   strings.Builder
	err    error
}

// Printer returns a printer to standard output with the given columns.
func (a *App) Printer(format string, header ...string) *Printer {
	return &Printer{w: a.Stdout, Format: format, header: header, bold: a.Terminal && a.Getenv("NO_COLOR") == ""}
}

// Row adds a row: the cells, or with -o json the object. A table shows a time in a form for people, and only
// as many cells as it has columns.
func (p *Printer) Row(obj any, cells ...any) {
	if p.Format == JSON {
		p.fail(cli.WriteJSON(p.w, obj))
		return
	}
	texts := make([]string, len(cells))
	for i, c := range cells {
		t, isTime := c.(time.Time)
		switch {
		case isTime && p.Format == Plain:
			c = Stamp(t)
		case isTime:
			c = Clock(t)
		}
		texts[i] = Clean(fmt.Sprint(c))
		if p.Format == Table {
			texts[i] = cmp.Or(texts[i], "-")
		}
	}
	if p.Format == Plain {
		_, err := fmt.Fprintln(p.w, strings.Join(texts, "\t"))
		p.fail(err)
		return
	}
	if p.table == nil {
		p.table = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
		fmt.Fprintln(p.table, strings.Join(p.header, "\t"))
	}
	fmt.Fprintln(p.table, strings.Join(texts[:min(len(texts), len(p.header))], "\t"))
}

func (p *Printer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Flush writes the table, if the format is a table.
func (p *Printer) Flush() error {
	if p.table == nil {
		return p.err
	}
	_ = p.table.Flush() // Flush writes to memory, so it cannot fail
	text := p.text.String()
	if p.bold {
		first, rest, _ := strings.Cut(text, "\n")
		text = "\x1b[1m" + first + "\x1b[0m\n" + rest
	}
	_, err := io.WriteString(p.w, text)
	p.fail(err)
	p.table = nil
	p.text.Reset()
	return p.err
}

// Clean makes text from other clients harmless before zlock shows it: the text cannot break a line, control
// the terminal, or look like another text.
func Clean(s string) string { return answer.Visible(s) }

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	return f != nil && ttyPgrp(int(f.Fd())) != 0
}
