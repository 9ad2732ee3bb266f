package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/audit"
)

func checkCommand() *command {
	return &command{
		Name: "check", ProgramFlags: true, Does: "say whether a server would start, and with which settings",
		Help: `Takes the flags of a server, its environment and --config. Reads everything, resolves the
names of the peers, opens and closes the ports, looks at certificates, at the data
directory and its disk, and at the limits of this process. Starts nothing. Ports are no
fault while a server runs on the data directory, which has them itself. Prints the
settings in force and where each comes from, then all faults with what to do about each.
Exit code: 0 a server would start, 2 it would not.`,
		Setup: func(*pflag.FlagSet) func(*dataCall) error {
			return func(c *dataCall) error { return c.checkOnly(c.Raw) }
		},
	}
}

// checkOnly runs zlockd check.
func (d *daemon) checkOnly(args []string) error {
	s, err := readSettings(args, d.kerberos)
	switch {
	case err != nil && (s == nil || s.flags == nil):
		return &cli.ExitError{Code: exitUsage, Err: err}
	case s.version:
		return cli.Exit(d.program().Main([]string{"version"}))
	case s.checkReady:
		return cli.Usagef("--check-ready asks a server that runs, and check whether one would start: leave one out")
	}
	s.print(d.stdout)
	s.tryPorts(func(string) bool { return true })
	s.lookUpPeers()
	s.tryDirectories()
	if _, err := newSASL(s, slog.New(slog.DiscardHandler)); err != nil {
		s.faults = append(s.faults, err)
	}
	if _, err := s.tokens(); err != nil {
		s.faults = append(s.faults, err)
	}
	if s.auditLog != "" {
		if err := audit.Try(s.auditLog); err != nil {
			s.fault("--audit-log: %w", err)
		}
	}
	// Go raises the soft limit to the hard one.
	if limit := admin.MaxOpenFiles(); limit >= 0 && limit < fewFiles {
		s.note("", "this process may open %d files only, and each client is one: raise the limit (LimitNOFILE, "+
			"ulimit -Hn)", limit)
	}
	for _, n := range s.notes {
		if n.key != "" {
			n.why = n.key + ": no effect: " + n.why
		}
		fmt.Fprintln(d.stdout, "note:", n.why)
	}
	if len(s.faults) > 0 {
		return &cli.ExitError{Code: exitUsage, Err: errors.Join(s.faults...)}
	}
	fmt.Fprintln(d.stdout, "ok: a server would start")
	return nil
}

// print writes the settings in force and the origin of each.
func (s *settings) print(w io.Writer) {
	s.flags.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		switch f.Name {
		case "help", "version":
			return
		case "super-digest":
			if value != "" {
				value = "(not shown)"
			}
		case "peer-addr":
			value = s.PeerListen
		}
		fmt.Fprintf(w, "%-28s %-32s %s\n", "--"+f.Name, cmp.Or(value, "-"), cmp.Or(s.origin[f.Name], "default"))
	})
}

// tryPorts opens each port that is asked for and closes it again. While a server runs on the data
// directory, a port that is taken is that server's: before an upgrade the question is whether the next
// start would succeed.
func (s *settings) tryPorts(asked func(flag string) bool) {
	running := !s.dev && disk.InUse(s.DataDir)
	if running {
		s.note("", "a server runs on --data-dir %s: its ports were not tried", s.DataDir)
	}
	for _, a := range s.addresses() {
		addr := a.addr
		if !asked(a.flag) || addr == "" || addr == off || a.flag == "peer-addr" && len(s.Peers) == 0 ||
			checkAddr(addr) != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		switch {
		case err == nil:
			l.Close()
		case !running || !errors.Is(err, syscall.EADDRINUSE):
			s.faults = append(s.faults, explain(err, s))
		}
	}
}

func (s *settings) tryDirectories() {
	if !s.dev && s.DataDir != "" {
		s.tryDirectory("data-dir", s.DataDir)
	}
	if s.BackupDir != "" {
		s.tryDirectory("backup-dir", s.BackupDir)
	}
}

// lookUpPeers looks up the names of the other servers.
func (s *settings) lookUpPeers() {
	for _, id := range ids(s.Peers) {
		host, _, err := net.SplitHostPort(s.Peers[id])
		if err != nil || host == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		cancel()
		if err != nil {
			s.fault("--peers: the name %s of server %d cannot be looked up here: %w\n  Correct the name, or give "+
				"an address.", host, id, err)
		}
	}
}

// Beyond these bounds a disk or a limit deserves a note.
const (
	slowSync = 20 * time.Millisecond
	fewFiles = 4096
)

// tryDirectory reports whether the server can use a directory, what it holds, and how fast and
// full its disk is.
func (s *settings) tryDirectory(flag, dir string) {
	at := dir
	info, err := os.Stat(at)
	for errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at) // the server would create dir there
		info, err = os.Stat(at)
	}
	switch {
	case err != nil:
		s.fault("--%s %s: %w", flag, dir, err)
		return
	case !info.IsDir():
		s.fault("--%s %s: %s is a file: name a directory, or one that can be made", flag, dir, at)
		return
	}
	if at == dir && flag == "data-dir" {
		foreign := disk.RefuseForeign(dir)
		switch entries, _ := os.ReadDir(dir); {
		case foreign != nil:
			s.fault("%w", foreign)
		case disk.IsDataDir(dir):
			s.note("", "--data-dir %s holds the data of a server, which would go on with it", dir)
		case len(entries) == 0:
			s.note("", "--data-dir %s is empty: the server would begin there", dir)
		default:
			s.note("", "--data-dir %s holds other files: the server would begin beside them", dir)
		}
	}
	took, err := syncTime(at)
	switch {
	case err != nil:
		s.fault("--%s %s cannot be written to by the user %d, to whom the server would belong: %w\n  chown it, "+
			"or choose another directory.", flag, dir, os.Geteuid(), err)
	case took > slowSync:
		s.note("", "a sync of the disk of %s takes %v, and so does every write", dir, took.Round(time.Millisecond))
	}
	if free, err := disk.FreeBytes(at); err == nil && free < s.diskReserve<<20 && flag == "data-dir" {
		s.fault("the disk of %s has %d MiB free, less than --disk-reserve %d: the server would refuse what "+
			"needs room\n  Make room, or lower the reserve.",
			dir, free>>20, s.diskReserve)
	}
}

// syncTime returns the median time to write and sync 4 KiB.
func syncTime(dir string) (_ time.Duration, failed error) {
	f, err := os.CreateTemp(dir, ".zlockd-check-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		f.Close()
		if err := os.Remove(f.Name()); err != nil && failed == nil {
			failed = err
		}
	}()
	var took []time.Duration
	for range 5 {
		begun := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
