package clients

import (
	"context"
	"net"

	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/observe"
)

// Server serves clients from an [entrance.Replica]. It learns of changes as the replica's raftfsm.Observer.
type Server struct {
	conns *shared
	listeners
}

// New returns a Server that serves no client yet. It can already observe a replica, which the caller then
// passes to Use.
func New(o options.Options) (*Server, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{conns: newShared(o), listeners: listeners{open: make(map[net.Listener]bool)}}, nil
}

// Options returns the options given to New, with every default filled in.
func (s *Server) Options() options.Options { return s.conns.o }

// Change applies MaxConns, MaxConnsPerAddr and SASL of o, and reports whether the SASL users have changed.
// Existing connections, and identities that clients have proved, stay.
func (s *Server) Change(o options.Options) (users bool) { return s.conns.Change(o) }

// Answer sets the answerer of four-letter words, and the URL that the server shows to clients that speak HTTP
// to the client port. Call it before Serve.
func (s *Server) Answer(w Words, adminURL string) { s.conns.Answer(w, adminURL) }

// Observed returns the statistics of clients for operators.
func (s *Server) Observed() *observe.Clients { return &s.conns.Observed }

// MaxConnsPerAddr returns the bound on connections from one address; negative: no bound.
func (s *Server) MaxConnsPerAddr() int { return s.conns.shares.Conns() }

// Use sets the state that the server serves. Call it once. Until then the server closes connections, as it
// does while the replica does not serve.
func (s *Server) Use(r entrance.Replica) { s.conns.entrance.Use(r) }

// UseMeanwhile sets the state that read-only sessions may read before Use is called. The server calls only
// its View and Zxid.
func (s *Server) UseMeanwhile(r entrance.Replica) { s.conns.entrance.UseMeanwhile(r) }

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(ctx context.Context) error {
	return s.conns.entrance.Wait(ctx, s.conns.Stopped())
}

// Shutdown stops accepting, closes every connection and waits for all goroutines, or until ctx ends. Sessions
// stay alive: their clients find another server, or this server again.
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
	s.conns.entrance.SetServing(false)
	s.conns.entrance.SetReadOnly(false)
	s.conns.Stop() // first: it explains the closed listeners
	s.listeners.close()
}
