package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// explain adds what to do to an error of the start.
func explain(err error, s *settings) error {
	var listen *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\n  Another program listens there, perhaps another zlockd. Stop it, or choose another address%s.", err, addrFlag(err, s))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w\n  This machine does not have that address. Choose another%s.", err, addrFlag(err, s))
	case errors.Is(err, syscall.EACCES) && errors.As(err, &listen):
		return fmt.Errorf("%w\n  Ports below 1024 need a privilege. Choose another address%s.", err, addrFlag(err, s))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w\n  The server needs to read and write %s as the user it runs as.", err, s.dataDir)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w\n  Make room on the disk of %s.", err, s.dataDir)
	}
	return err
}

// addrFlag names the flag that an address in an error comes from.
func addrFlag(err error, s *settings) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr == nil {
		return ""
	}
	_, port, _ := net.SplitHostPort(op.Addr.String())
	for _, a := range []struct{ flag, addr string }{
		{"client-addr", s.clientAddr}, {"secure-client-addr", s.secureClientAddr},
		{"admin-addr", s.adminAddr}, {"peer-addr", s.peerAddr},
	} {
		if _, p, err := net.SplitHostPort(a.addr); err == nil && p == port {
			return " with --" + a.flag
		}
	}
	return ""
}
