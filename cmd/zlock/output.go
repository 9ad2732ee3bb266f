package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
)

// Output formats: table for people, plain for cut and awk (tab separated, no
// header, columns only ever added at the end), json with one object per line.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatPlain = "plain"
)

// addFormat adds -o.
func addFormat(fs *pflag.FlagSet) *string {
	return cli.AddOutput(fs, "table, json (one object per line) or plain (tab separated)",
		formatTable, formatJSON, formatPlain)
}

// printer writes rows in one of the formats.
type printer struct {
	w      io.Writer
	format string
	bold   bool
	header []string
	rows   [][]string
	err    error
}

// printer returns a printer to standard output with the given columns.
func (a *app) printer(format string, header ...string) *printer {
	return &printer{w: a.stdout, format: format, header: header, bold: a.terminal && a.getenv("NO_COLOR") == ""}
}

// time formats a time for people or for programs.
func (p *printer) time(t time.Time) string {
	if p.format == formatPlain {
		return stamp(t)
	}
	return clock(t)
}

// row adds a row: the cells, or in JSON the object. A table shows as many cells as it has
// columns.
func (p *printer) row(obj any, cells ...string) {
	switch p.format {
	case formatJSON:
		p.fail(cli.WriteJSON(p.w, obj))
	case formatPlain:
		for i, c := range cells {
			cells[i] = clean(c)
		}
		_, err := fmt.Fprintln(p.w, strings.Join(cells, "\t"))
		p.fail(err)
	default:
		cells = cells[:min(len(cells), len(p.header))]
		for i, c := range cells {
			if cells[i] = clean(c); c == "" {
				cells[i] = "-"
			}
		}
		p.rows = append(p.rows, cells)
	}
}

func (p *printer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// flush writes the table, if the format is a table.
func (p *printer) flush() error {
	if p.format == formatTable && len(p.rows) > 0 {
		p.fail(p.table())
		p.rows = nil
	}
	return p.err
}

func (p *printer) table() error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{p.header}, p.rows...) {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // to memory
	text := b.String()
	if p.bold {
		first, rest, _ := strings.Cut(text, "\n")
		text = "\x1b[1m" + first + "\x1b[0m\n" + rest
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// clean makes foreign text harmless: text that other clients wrote into their nodes must not
// break a line or command a terminal.
func clean(s string) string {
	if !strings.ContainsFunc(s, unprintable) && utf8.ValidString(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case unprintable(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != ' ' }

// isTerminal reports whether f is a character device that is not the null device.
func isTerminal(f *os.File) bool {
	return f != nil && ttyPgrp(int(f.Fd())) != 0
}
