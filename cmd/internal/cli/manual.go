package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/release"
)

// manualCommand prints the manual pages. Packages for Linux call it to install the pages.
func (p *Program[C]) manualCommand() *Command[C] {
	pages := slices.Sorted(maps.Keys(p.Pages))
	return &Command[C]{
		Name: "manual", Args: "[PAGE]", Does: "print a manual page for man(1)", Hidden: true, Words: pages, Most: 1,
		own: func(c *Call) error {
			page := p.Manual
			if len(c.Args) == 1 && len(pages) > 0 {
				if page = p.Pages[c.Args[0]]; page == nil {
					return Usagef("there is no page %q: want one of %s", c.Args[0], strings.Join(pages, ", "))
				}
			}
			page(p.Stdout)
			return nil
		},
	}
}

// Manual writes the program's page. The page is in section 8 if the program runs without a command, as a
// server, and in section 1 otherwise.
func (p *Program[C]) Manual(w io.Writer) {
	section := 1
	if p.Plain != nil {
		section = 8
	}
	m := NewPage(w, p.Name, section, p.Does)
	m.Section("SYNOPSIS")
	for i, s := range p.Synopsis {
		if i > 0 {
			fmt.Fprintln(w, ".br")
		}
		fmt.Fprintf(w, "\\fB%s\\fR %s\n", p.Name, escape(s))
	}
	m.Section("DESCRIPTION")
	m.Text(p.About)
	if p.Groups != nil {
		m.Section("OPTIONS")
		for _, g := range p.Groups() {
			m.Heading(g.Title)
			m.List(p.FlagList(g.Flags))
		}
	}
	m.Section("COMMANDS")
	for _, c := range p.Shown() {
		m.Heading(strings.TrimSpace(p.Name + " " + c.Name + " " + c.Args))
		m.Text(sentence(c.Does) + ".")
		m.Text(c.Help)
		if !c.ProgramFlags {
			fs, _ := p.flagSet(c)
			m.List(p.FlagList(fs))
		}
	}
	if p.Examples != "" {
		m.Section("EXAMPLES")
		m.verbatim(p.Examples)
	}
	m.Section("NOTES")
	m.Text(p.Notes)
	m.Section("EXIT STATUS")
	m.List(p.Exits)
	m.Section("SEE ALSO")
	m.Text(p.See)
}

// Page is a manual page in roff's language.
type Page struct{ w io.Writer }

// NewPage begins a page.
func NewPage(w io.Writer, name string, section int, does string) Page {
	fmt.Fprintf(w, ".TH %q %d %q %q\n", strings.ToUpper(name), section,
		release.Built().UTC().Format("2006-01-02"), "zlockd "+release.Version())
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", name, escape(does))
	return Page{w}
}

// Section begins a section.
func (m Page) Section(title string) { fmt.Fprintf(m.w, ".SH %s\n", escape(title)) }

// Heading begins a part of a section.
func (m Page) Heading(title string) { fmt.Fprintf(m.w, ".SS %q\n", escape(title)) }

// Text writes paragraphs. A paragraph with hand-aligned lines keeps its lines.
func (m Page) Text(text string) {
	for par := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case par == "":
		case strings.HasPrefix(par, " "), strings.Contains(par, "  "):
			m.verbatim(par)
		default:
			fmt.Fprintf(m.w, ".PP\n%s\n", escape(par))
		}
	}
}

func (m Page) verbatim(text string) {
	fmt.Fprintf(m.w, ".PP\n.nf\n%s\n.fi\n", escape(strings.Trim(text, "\n")))
}

// List writes words and their meanings.
func (m Page) List(list []Meaning) {
	for _, l := range list {
		fmt.Fprintf(m.w, ".TP\n\\fB%s\\fR\n%s\n", escape(l.Word), escape(l.Means))
	}
}

// FlagList returns flags with their texts for the manual, which are longer than those of the help.
func (p *Program[C]) FlagList(fs *pflag.FlagSet) (list []Meaning) {
	fs.VisitAll(func(f *pflag.Flag) {
		name, does := FlagText(f)
		if more := p.Details[f.Name]; more != "" {
			does += ". " + more
		}
		if !f.Hidden {
			list = append(list, Meaning{name, does})
		}
	})
	return list
}

// escape() makes text safe for roff: no line becomes a request, a dash can be copied as a dash, and
// characters outside ASCII are written by their names.
func escape(text string) string {
	var b strings.Builder
	begins := true
	for _, r := range text {
		switch {
		case begins && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '…':
			b.WriteString("...")
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		begins = r == '\n'
	}
	return b.String()
}
