package clients

import (
	"context"
	"maps"
	"net"

	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/options"
)

// Server serves clients from an [entrance.Replica]. It learns of changes as the replica's raftfsm.Observer.
type Server struct {
	shared // all that connections know of the server
	listeners
}

// New returns a Server that serves no client yet. It can already observe a replica, which the caller then
// passes to Use.
func New(o options.Options) (*Server, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := new(Server)
	s.listeners.open = make(map[net.Listener]bool)
	s.init(o)
	s.Change(o)
	return s, nil
}

// Options returns the options given to New, with every default filled in.
func (s *Server) Options() options.Options { return s.o }

// Change applies MaxConns, MaxConnsPerAddr and SASL of o, and reports whether the SASL users have changed.
// Existing connections, and identities that clients have proved, stay.
func (s *Server) Change(o options.Options) (users bool) {
	o.BoundConns()
	s.mu.Lock()
	s.maxConns = o.MaxConns
	s.shares.SetConns(o.MaxConnsPerAddr)
	for _, from := range s.perAddr {
		from.Account.Forgive() // costs from a time without a bound are not a debt
	}
	s.mu.Unlock()
	old := s.mechanisms.Swap(o.SASL)
	return old != nil && o.SASL != nil && !maps.Equal(old.Users, o.SASL.Users)
}

// MaxConnsPerAddr returns the bound on connections from one address; negative: no bound.
func (s *Server) MaxConnsPerAddr() int { return s.shares.Conns() }

// Answer sets the answerer of four-letter words, and the URL that the server shows to clients that speak HTTP
// to the client port. Call it before Serve.
func (s *Server) Answer(w Words, adminURL string) { s.words, s.adminURL = w, adminURL }

// Use sets the state that the server serves. Call it once. Until then the server closes connections, as it
// does while the replica does not serve.
func (s *Server) Use(r entrance.Replica) { s.entrance.Use(r) }

// UseMeanwhile sets the state that read-only sessions may read before Use is called. The server calls only
// its View and Zxid.
func (s *Server) UseMeanwhile(r entrance.Replica) { s.entrance.UseMeanwhile(r) }

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(ctx context.Context) error { return s.entrance.Wait(ctx, s.ctx.Done()) }

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
	s.entrance.SetServing(false)
	s.entrance.SetReadOnly(false)
	s.cancel() // cancel first: the end of ctx explains the closed listeners, and no other connection comes
	s.listeners.close()
	for _, c := range s.all() {
		c.out.Close(ends.Stopped)
	}
}
