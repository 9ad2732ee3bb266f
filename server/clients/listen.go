package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
)

// Pauses between attempts to accept while the system refuses, for example without free descriptors.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// Serve accepts clients from ln until ln or the server is closed. It returns
// nil after Shutdown.
func (s *Server) Serve(ln net.Listener) error { return s.serve(ln, nil) }

// ServeTLS is Serve for clients that speak TLS.
func (s *Server) ServeTLS(ln net.Listener) error {
	if s.o.TLSConfig == nil {
		return errors.New("no TLS configuration")
	}
	return s.serve(ln, s.o.TLSConfig)
}

func (s *Server) serve(ln net.Listener, config *tls.Config) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		ln.Close()
		return nil
	}
	s.listeners[ln] = true
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer ln.Close()
	wait := acceptWaitMin
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.counts.acceptErrors.Add(1)
			s.log.Warn("accept failed", "err", err)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
				return nil
			}
			wait = min(2*wait, acceptWaitMax)
			continue
		}
		wait = acceptWaitMin
		s.handle(nc, config)
	}
}

// handle gives a new connection its goroutine, or closes it at once. It applies the limits before
// the first byte is read, TLS or not.
func (s *Server) handle(nc net.Conn, config *tls.Config) {
	c := newConn(s, nc, config)
	if !s.add(c) {
		nc.Close()
		return
	}
	go c.serve(ends.None)
}

// Shutdown stops accepting, closes every connection and waits for all goroutines, or until ctx ends. Sessions
// stay alive: their clients find another server, or this server again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.CutOff()
	done := make(chan struct{})
	go func() {
		s.outboxes.Stop()
		s.resting.Stop()
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CutOff closes every listener and every connection without waiting.
func (s *Server) CutOff() {
	s.serving.Store(false)
	s.readOnly.Store(false)
	s.cancel() // cancel first: the end of ctx explains the closed listeners
	s.mu.Lock()
	s.closed = true
	for ln := range s.listeners {
		ln.Close()
	}
	s.mu.Unlock()
	for _, c := range s.all() {
		c.out.Close(ends.Stopped)
	}
}
