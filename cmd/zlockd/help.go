package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

const helpTop = `zlockd is a lock server that speaks the ZooKeeper protocol.

Usage:
  zlockd [flags]
  zlockd COMMAND ...

Examples:
  zlockd                        a durable single server, data in ./zlockd-data
  zlockd --dev                  a server in memory, for development and tests
  zlockd --dev --client-addr 127.0.0.1:0 --admin-addr off
                                the same on a free port, named on stdout once ready
  zlockd --id 1 --client-addr :2181 --data-dir /var/lib/zlockd \
         --peers 1=lock1:2888,2=lock2:2888,3=lock3:2888 \
         --peer-tls-cert peer.pem --peer-tls-key peer.key --peer-tls-ca ca.pem
                                one of three servers
  zlockd --config zoo.cfg       with the configuration of a ZooKeeper
  zlockd check --config zoo.cfg say all that is wrong with it, and start nothing

`

const helpEnd = `
Once clients are served, one line on stdout says where:
  zlockd ready client=ADDR peer=ADDR admin=ADDR mode=MODE version=VERSION
Every flag can be given as an environment variable: ZLOCKD_DATA_DIR is --data-dir.
The command line wins over the environment, the environment over --config.
The log goes to stderr. SIGTERM and SIGINT stop in order, a second one at once.
Exit status: 0 stopped in order, 1 failed, 2 wrong flags or configuration,
3 stopped at once.
`

// helpWidth is the column at which lines of the help are wrapped; helpIndent is the column at
// which the texts of flags begin.
const (
	helpWidth  = 79
	helpIndent = 6
)

// printHelp writes the help, with flags grouped by topic.
func printHelp(w io.Writer) {
	io.WriteString(w, helpTop)
	for _, g := range flagGroups(new(settings)) {
		fmt.Fprintf(w, "%s:\n", g.title)
		g.flags.VisitAll(func(f *pflag.Flag) { printFlag(w, f) })
		io.WriteString(w, "\n")
	}
	printDataCommands(w)
	io.WriteString(w, strings.TrimPrefix(helpEnd, "\n"))
}

// printFlag writes a flag, the name of its value, what it does and its default.
func printFlag(w io.Writer, f *pflag.Flag) {
	name, text := pflag.UnquoteUsage(f)
	line := "  --" + f.Name
	if f.Shorthand != "" {
		line = "  -" + f.Shorthand + ", --" + f.Name
	}
	if name != "" {
		line += " " + name
	}
	fmt.Fprintln(w, line)
	switch def := f.DefValue; {
	case def == "" || def == "false" || strings.Contains(text, "(default"):
	default:
		text += " (default " + def + ")"
	}
	col := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case col == 0:
			io.WriteString(w, strings.Repeat(" ", helpIndent))
			col = helpIndent
		case col+1+len(word) > helpWidth:
			io.WriteString(w, "\n"+strings.Repeat(" ", helpIndent))
			col = helpIndent
		default:
			io.WriteString(w, " ")
			col++
		}
		io.WriteString(w, word)
		col += len(word)
	}
	io.WriteString(w, "\n")
}
