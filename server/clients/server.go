package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/zlockd/zlockd/server/clients/conn"
	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/observe"
)

// Server serves clients from an [entrance.Replica]. It learns of changes as the replica's raftfsm.Observer.
type Server struct {
	conns *conn.Shared
	listeners
}

// New returns a Server that serves no client yet. It can already observe a replica, which the caller then
// passes to Use.
func New(o options.Options) (*Server, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{conns: conn.New(o), listeners: listeners{open: make(map[net.Listener]bool)}}, nil
}

// Options returns the options given to New, with every default filled in.
func (s *Server) Options() options.Options { return s.conns.Options }

// Change applies MaxConns, MaxConnsPerAddr and SASL of o, and reports whether the SASL users have changed.
// Existing connections, and identities that clients have proved, stay.
func (s *Server) Change(o options.Options) (users bool) { return s.conns.Change(o) }

// Answer sets the answerer of four-letter words, and the URL that the server shows to clients that speak HTTP
// to the client port. Call it before Serve.
func (s *Server) Answer(w conn.Words, adminURL string) { s.conns.Answer(w, adminURL) }

// Observed returns the statistics of clients for operators.
func (s *Server) Observed() *observe.Clients { return &s.conns.Observed }

// MaxConnsPerAddr returns the bound on connections from one address; negative: no bound.
func (s *Server) MaxConnsPerAddr() int { return s.conns.Shares.Conns() }

// Use sets the state that the server serves. Call it once. Until then the server closes every connection, and
// later it does so while the replica does not serve.
func (s *Server) Use(r entrance.Replica) { s.conns.Entrance.Use(r) }

// UseMeanwhile sets the state that read-only sessions may read before Use is called. The server calls only
// the methods View and Zxid of r.
func (s *Server) UseMeanwhile(r entrance.Replica) { s.conns.Entrance.UseMeanwhile(r) }

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(ctx context.Context) error {
	return s.conns.Entrance.Wait(ctx, s.conns.Stopped())
}

// Shutdown stops accepting, closes every connection and waits until all goroutines have ended or ctx ends.
// Sessions stay alive: their clients find another server, or this server again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.CutOff()
	done := make(chan struct{})
	go func() {
		s.conns.Wait()
		s.listeners.running.Wait()
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
	s.conns.Entrance.SetServing(false)
	s.conns.Entrance.SetReadOnly(false)
	s.conns.Stop() // before the listeners close: Serve then knows that the server stops, and returns nil
	s.listeners.close()
}

// Pauses between attempts to accept a connection while the system refuses, for example because no descriptor
// is free.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// listeners holds the listeners of a server.
type listeners struct {
	lock    sync.Mutex
	open    map[net.Listener]bool
	running sync.WaitGroup // counts the goroutines of the listeners
}

// close closes all listeners.
func (l *listeners) close() {
	l.lock.Lock()
	defer l.lock.Unlock()
	for ln := range l.open {
		ln.Close()
	}
}

// opened() counts a listener, unless the server stops.
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

// stops() reports whether the server stops.
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
	if s.conns.Options.TLSConfig == nil {
		return errors.New("no TLS configuration")
	}
	return s.serve(ln, s.conns.Options.TLSConfig)
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
			s.conns.Counts.AcceptErrors.Add(1)
			s.conns.Log.Warn("accept failed", "err", err)
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
