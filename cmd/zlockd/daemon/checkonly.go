package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/data"
	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/machine"
)

func (d *daemon) checkCommand() *data.Command {
	return &data.Command{
		Name: "check", ProgramFlags: true,
		Does: "check whether a server would start, and with which settings",
		Help: `Takes the flags of a server, its environment and --config. Reads everything, resolves the
names of the peers, opens and closes the ports, looks at certificates, at the data
directory and its disk, and at the limits of this process. Starts nothing. Ports in use
are not a fault while a server runs on the data directory and uses them. Prints
the settings in force with the origin of each, then all faults, with advice for each.
Exit code: 0 a server would start, 2 it would not.`,
		Setup: func(*pflag.FlagSet) func(*data.Call) error {
			return func(c *data.Call) error { return d.checkOnly(c.Raw) }
		},
	}
}

// checkOnly runs zlockd check.
func (d *daemon) checkOnly(args []string) error {
	s, err := settings.Read(args, d.kerberos)
	switch {
	case err != nil && (s == nil || s.Flags == nil):
		return &cli.ExitError{Code: exitUsage, Err: err}
	case s.ShowVersion:
		return cli.Exit(d.program().Main([]string{"version"}))
	case s.CheckReady:
		return cli.Usagef("--check-ready asks a running server, and check looks at the next start: leave " +
			"out one of them")
	}
	s.Print(d.stdout)
	s.Try()
	if _, err := newSASL(s, slog.New(slog.DiscardHandler)); err != nil {
		s.Faults = append(s.Faults, err)
	}
	if _, err := ticketTokens(s); err != nil {
		s.Faults = append(s.Faults, err)
	}
	if s.AuditLog != "" {
		if err := audit.Try(s.AuditLog); err != nil {
			s.Fault("--audit-log: %w", err)
		}
	}
	// This is the hard limit: Go raises the soft limit to it when a program starts.
	if limit := machine.MaxOpenFiles(); limit >= 0 && limit < fewFiles {
		s.Note("", "this process may open only %d files, and each client needs one: raise the limit (LimitNOFILE, "+
			"ulimit -Hn)", limit)
	}
	for _, n := range s.Notes {
		if n.Key != "" {
			n.Why = n.Key + ": no effect: " + n.Why
		}
		fmt.Fprintln(d.stdout, "note:", n.Why)
	}
	if len(s.Faults) > 0 {
		return &cli.ExitError{Code: exitUsage, Err: errors.Join(s.Faults...)}
	}
	fmt.Fprintln(d.stdout, "ok: a server would start")
	return nil
}

// fewFiles is how many open files zlockd check finds too few, so that it adds a note.
const fewFiles = 4096
