package main

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

// examiner collects the findings of zlockd check.
type examiner struct {
	s      *settings
	faults []error
	notes  []string
}

func (e *examiner) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

func (e *examiner) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// checkOnly runs zlockd check.
func (d *daemon) checkOnly(args []string) error {
	s, err := readSettings(args)
	e := &examiner{s: s}
	if err != nil {
		e.faults = append(e.faults, err)
	}
	if s != nil && s.flags != nil {
		for _, n := range s.more.notes {
			e.note("%s: no effect: %s", n.key, n.why)
		}
		s.print(d.stdout)
		e.ports(func(string) bool { return true })
		e.peerNames()
		e.directories()
		e.files()
		if _, err := newSASL(s, slog.New(slog.DiscardHandler)); err != nil {
			e.faults = append(e.faults, err)
		}
		if s.auditLog != "" {
			if err := audit.Try(s.auditLog); err != nil {
				e.fault("--audit-log: %w", err)
			}
		}
	}
	for _, n := range e.notes {
		fmt.Fprintln(d.stdout, "note:", n)
	}
	if len(e.faults) > 0 {
		return &cli.ExitError{Code: exitUsage, Err: errors.Join(e.faults...)}
	}
	fmt.Fprintln(d.stdout, "ok: a server would start")
	return nil
}

// withSurroundings adds to the error of a start what else is wrong with the ports that the operator
// has named, and with the directories.
func withSurroundings(err error, s *settings) error {
	if s == nil || s.flags == nil {
		return err
	}
	e := &examiner{s: s}
	e.ports(func(flag string) bool { return s.origin[flag] != "" })
	e.directories()
	told, _ := errors.AsType[*net.OpError](err)
	for _, f := range e.faults {
		op, port := errors.AsType[*net.OpError](f)
		if told == nil || !port || fmt.Sprint(op.Addr) != fmt.Sprint(told.Addr) {
			err = errors.Join(err, f)
		}
	}
	return err
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

// ports opens each port that is asked for and closes it again. While a server runs on the data
// directory, a port that is taken is that server's: before an upgrade the question is whether the next
// start would succeed.
func (e *examiner) ports(asked func(flag string) bool) {
	running := !e.s.dev && disk.InUse(e.s.DataDir)
	if running {
		e.note("a server runs on --data-dir %s: its ports were not tried", e.s.DataDir)
	}
	for _, a := range e.s.addresses() {
		addr := a.addr
		if !asked(a.flag) || addr == "" || addr == off || a.flag == "peer-addr" && len(e.s.Peers) == 0 ||
			checkAddr(addr) != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		switch {
		case err == nil:
			l.Close()
		case !running || !errors.Is(err, syscall.EADDRINUSE):
			e.faults = append(e.faults, explain(err, e.s))
		}
	}
}

func (e *examiner) directories() {
	if !e.s.dev && e.s.DataDir != "" {
		e.directory("data-dir", e.s.DataDir)
	}
	if e.s.BackupDir != "" {
		e.directory("backup-dir", e.s.BackupDir)
	}
}

// peerNames looks up the names of the other servers.
func (e *examiner) peerNames() {
	for _, id := range ids(e.s.Peers) {
		host, _, err := net.SplitHostPort(e.s.Peers[id])
		if err != nil || host == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		cancel()
		if err != nil {
			e.fault("--peers: the name %s of server %d cannot be looked up here: %w\n  Correct the name, or give "+
				"an address.", host, id, err)
		}
	}
}

// Beyond these bounds a disk or a limit deserves a note.
const (
	slowSync = 20 * time.Millisecond
	fewFiles = 4096
)

// directory reports whether the server can use a directory, what it holds, and how fast and
// full its disk is.
func (e *examiner) directory(flag, dir string) {
	at := dir
	info, err := os.Stat(at)
	for errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at) // the server would create dir there
		info, err = os.Stat(at)
	}
	switch {
	case err != nil:
		e.fault("--%s %s: %w", flag, dir, err)
		return
	case !info.IsDir():
		e.fault("--%s %s: %s is a file: name a directory, or one that can be made", flag, dir, at)
		return
	}
	if at == dir && flag == "data-dir" {
		switch entries, _ := os.ReadDir(dir); {
		case disk.IsDataDir(dir):
			e.note("--data-dir %s holds the data of a server, which would go on with it", dir)
		case len(entries) == 0:
			e.note("--data-dir %s is empty: the server would begin there", dir)
		default:
			e.note("--data-dir %s holds other files: the server would begin beside them", dir)
		}
	}
	took, err := syncTime(at)
	switch {
	case err != nil:
		e.fault("--%s %s cannot be written to by the user %d, to whom the server would belong: %w\n  chown it, "+
			"or choose another directory.", flag, dir, os.Geteuid(), err)
	case took > slowSync:
		e.note("a sync of the disk of %s takes %v, and so does every write", dir, took.Round(time.Millisecond))
	}
	if free, err := disk.FreeBytes(at); err == nil && free < e.s.diskReserve<<20 && flag == "data-dir" {
		e.fault("the disk of %s has %d MiB free, less than --disk-reserve %d: the server would refuse what "+
			"needs room\n  Make room, or lower the reserve.",
			dir, free>>20, e.s.diskReserve)
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

// files notes a low limit of open files.
func (e *examiner) files() {
	// Go raises the soft limit to the hard one.
	if limit := admin.MaxOpenFiles(); limit >= 0 && limit < fewFiles {
		e.note("this process may open %d files only, and each client is one: raise the limit (LimitNOFILE, "+
			"ulimit -Hn)", limit)
	}
}
