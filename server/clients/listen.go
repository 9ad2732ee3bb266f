package clients

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// Pauses between attempts to accept while the system refuses, for example without free descriptors.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// listeners holds the listeners of a server.
type listeners struct {
	lock    sync.Mutex
	open    map[net.Listener]bool
	running sync.WaitGroup // a goroutine of each
}

// close closes all listeners.
func (l *listeners) close() {
	l.lock.Lock()
	defer l.lock.Unlock()
	for ln := range l.open {
		ln.Close()
	}
}

// opened counts a listener, unless the server stops.
func (s *Server) opened(ln net.Listener) bool {
	s.listeners.lock.Lock()
	defer s.listeners.lock.Unlock()
	if s.stops() {
		return false
	}
	s.listeners.open[ln] = true
	s.listeners.running.Add(1)
	return true
}

// stops reports whether the server stops.
func (s *Server) stops() bool {
	select {
	case <-s.conns.Stopped():
		return true
	default:
		return false
	}
}

// Serve accepts clients from ln until ln or the server is closed. It returns
// nil after Shutdown.
func (s *Server) Serve(ln net.Listener) error { return s.serve(ln, nil) }

// ServeTLS is Serve for clients that speak TLS.
func (s *Server) ServeTLS(ln net.Listener) error {
	if s.conns.o.TLSConfig == nil {
		return errors.New("no TLS configuration")
	}
	return s.serve(ln, s.conns.o.TLSConfig)
}

func (s *Server) serve(ln net.Listener, config *tls.Config) error {
	if !s.opened(ln) {
		ln.Close()
		return nil
	}
	defer s.listeners.running.Done()
	defer ln.Close()
	wait := acceptWaitMin
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.stops() {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.conns.counts.acceptErrors.Add(1)
			s.conns.log.Warn("accept failed", "err", err)
			select {
			case <-time.After(wait):
			case <-s.conns.Stopped():
				return nil
			}
			wait = min(2*wait, acceptWaitMax)
			continue
		}
		wait = acceptWaitMin
		s.conns.Handle(nc, config)
	}
}
