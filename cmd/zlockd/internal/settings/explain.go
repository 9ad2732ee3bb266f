package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Explain adds advice to an error of the start.
func Explain(err error, s *Settings) error {
	name, unknown := errors.AsType[*net.DNSError](err)
	listen, _ := errors.AsType[*net.OpError](err)
	file, _ := errors.AsType[*fs.PathError](err)
	ours := file == nil || s.inDataDir(file.Path)
	flag := ""
	switch {
	case unknown:
		flag = flagOf(s, func(host, _ string) bool { return host == name.Name })
	case listen != nil && listen.Addr != nil:
		_, port, _ := net.SplitHostPort(listen.Addr.String())
		flag = flagOf(s, func(_, p string) bool { return p == port })
	}
	switch {
	case unknown:
		return fmt.Errorf("%w\n  %s cannot be resolved on this machine. Give an address, or another name%s.", err,
			name.Name, flag)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\n  Another program listens there, perhaps another zlockd. Stop it, or choose "+
			"another address%s.", err, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w\n  This machine does not have that address. Choose another%s.", err, flag)
	case errors.Is(err, syscall.EACCES) && listen != nil:
		return fmt.Errorf("%w\n  Ports below 1024 need a privilege. Choose another address%s.", err, flag)
	case errors.Is(err, os.ErrPermission) && ours:
		return fmt.Errorf("%w\n  The server needs to read and write %s as the user it runs as; --data-dir "+
			"chooses another directory.", err, s.DataDir)
	case errors.Is(err, syscall.ENOSPC) && ours:
		return fmt.Errorf("%w\n  Make room on the disk of %s, or choose another --data-dir.", err, s.DataDir)
	case file != nil && ours:
		return fmt.Errorf("%w\n  --data-dir must name a directory, or one that can be made.", err)
	}
	return err
}

// inDataDir reports whether a path is the data directory, in it, or on the way to it.
func (s *Settings) inDataDir(path string) bool {
	dir, _ := filepath.Abs(s.DataDir)
	path, err := filepath.Abs(path)
	return err == nil && !s.Dev && (strings.HasPrefix(path, dir) || strings.HasPrefix(dir, path))
}

// address is the value of a flag that names an address.
type address struct{ flag, addr string }

func (s *Settings) addresses() []address {
	return []address{{"client-addr", s.ClientAddr}, {"secure-client-addr", s.SecureAddr},
		{"admin-addr", s.AdminAddr}, {"metrics-addr", s.MetricsAddr}, {"ticket-addr", s.TicketAddr},
		{"peer-addr", s.PeerListen}}
}

// flagOf returns the words " with --FLAG" for the first flag whose host and port meant() accepts. If it
// accepts no flag, flagOf returns "".
func flagOf(s *Settings, meant func(host, port string) bool) string {
	for _, a := range s.addresses() {
		if host, port, err := net.SplitHostPort(a.addr); err == nil && meant(host, port) {
			return " with --" + a.flag
		}
	}
	return ""
}
