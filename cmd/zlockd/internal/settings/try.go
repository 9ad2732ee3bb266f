package settings

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/disk"
)

// Try checks the environment of a server with these settings: its ports, the names of its peers, its
// directories.
func (s *Settings) Try() {
	s.tryPorts(func(string) bool { return true })
	s.lookUpPeers()
	s.tryDirectories()
}

// tryPorts opens each port that asked() accepts, and closes it again. If a server runs on the data directory,
// a port in use is no fault, because that server uses it. So an operator can check before an upgrade whether
// the next start will succeed.
func (s *Settings) tryPorts(asked func(flag string) bool) {
	running := !s.Dev && disk.InUse(s.DataDir)
	if running {
		s.Note("", "a server runs on --data-dir %s: its ports were not tried", s.DataDir)
	}
	for _, a := range s.addresses() {
		addr := a.addr
		if !asked(a.flag) || addr == "" || addr == Off || a.flag == "peer-addr" && len(s.Peers) == 0 ||
			checkAddr(addr) != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		switch {
		case err == nil:
			l.Close()
		case !running || !errors.Is(err, syscall.EADDRINUSE):
			s.Faults = append(s.Faults, Explain(err, s))
		}
	}
}

func (s *Settings) tryDirectories() {
	if !s.Dev && s.DataDir != "" {
		s.tryDirectory("data-dir", s.DataDir)
	}
	if s.BackupDir != "" {
		s.tryDirectory("backup-dir", s.BackupDir)
	}
}

// lookUpPeers looks up the names of the other servers.
func (s *Settings) lookUpPeers() {
	for _, id := range ids(s.Peers) {
		host, _, err := net.SplitHostPort(s.Peers[id])
		if err != nil || host == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		cancel()
		if err != nil {
			s.Fault("--peers: the name %s of server %d cannot be looked up here: %w\n  Correct the name, or give "+
				"an address.", host, id, err)
		}
	}
}

// slowSync is the time of a sync above which zlockd check adds a note about the disk.
const slowSync = 20 * time.Millisecond

// tryDirectory reports whether the server can use a directory, what it holds, and how fast and
// full its disk is.
func (s *Settings) tryDirectory(flag, dir string) {
	at := dir
	info, err := os.Stat(at)
	for errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at) // dir does not exist: look where the server would create it
		info, err = os.Stat(at)
	}
	switch {
	case err != nil:
		s.Fault("--%s %s: %w", flag, dir, err)
		return
	case !info.IsDir():
		s.Fault("--%s %s: %s is a file: name a directory, or one that can be made", flag, dir, at)
		return
	}
	if at == dir && flag == "data-dir" {
		foreign := disk.RefuseForeign(dir)
		switch entries, _ := os.ReadDir(dir); {
		case foreign != nil:
			s.Fault("%w", foreign)
		case disk.IsDataDir(dir):
			s.Note("", "--data-dir %s holds a server's data: the server would continue with them", dir)
		case len(entries) == 0:
			s.Note("", "--data-dir %s is empty: the server would begin without data", dir)
		default:
			s.Note("", "--data-dir %s holds other files: the server would begin beside them", dir)
		}
	}
	took, err := syncTime(at)
	switch {
	case err != nil:
		s.Fault("--%s %s is not writable for user %d, as whom the server would run: %w\n  chown it, "+
			"or choose another directory.", flag, dir, os.Geteuid(), err)
	case took > slowSync:
		s.Note("", "a sync of the disk of %s takes %v, and so does every write", dir, took.Round(time.Millisecond))
	}
	if free, err := disk.FreeBytes(at); err == nil && free < s.ReserveMiB<<20 && flag == "data-dir" {
		s.Fault("the disk of %s has %d MiB free, less than --disk-reserve %d: the server would refuse "+
			"requests that need more room\n  Make room, or lower the reserve.",
			dir, free>>20, s.ReserveMiB)
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

// WithSurroundings adds further faults to the error of a start: faults of the ports that the operator has
// named, and of the directories.
func WithSurroundings(err error, s *Settings) error {
	if s == nil || s.Flags == nil {
		return err
	}
	before := len(s.Faults)
	s.tryPorts(func(flag string) bool { return s.origin[flag] != "" })
	s.tryDirectories()
	told, _ := errors.AsType[*net.OpError](err)
	for _, f := range s.Faults[before:] {
		op, port := errors.AsType[*net.OpError](f)
		if told == nil || !port || fmt.Sprint(op.Addr) != fmt.Sprint(told.Addr) {
			err = errors.Join(err, f)
		}
	}
	return err
}
