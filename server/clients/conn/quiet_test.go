package conn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/entrance"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/must"
)

// quiet() returns a server that serves no client, and a connection of it.
func quiet(t testing.TB, o options.Options) (*Shared, *Conn) {
	s := quietly(t, o)
	return s, connFrom(s, new(address))
}

// quietly() returns what the connections of a server share, and stops it when the test ends.
func quietly(t testing.TB, o options.Options) *Shared {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := New(must.Get(o.WithDefaults())(t))
	t.Cleanup(func() {
		s.Stop()
		s.Wait()
	})
	return s
}

// connFrom returns a connection from an address.
func connFrom(s *Shared, from *address) *Conn {
	c := newConn(s, &net.TCPConn{}, nil)
	c.from, c.watcher.From = from, &from.Address
	c.proof.IDs.Store(identity.Unproved("127.0.0.1", false))
	return c
}

// newFrom returns a connection from a host. The connection is not registered yet.
func newFrom(s *Shared, host string) *Conn {
	c := newConn(s, &net.TCPConn{}, nil)
	c.from.Host = host
	return c
}

// glances counts the calls of View.
type glances struct {
	entrance.Replica
	n atomic.Int64
}

func (g *glances) View(f func(*state.State)) {
	g.n.Add(1)
	g.Replica.View(f)
}

// owe() makes an address owe exactly `steps` steps.
func owe(from *address, steps int64) { from.Account.Charge(steps - from.Account.Owed()) }

// refusing is a replica that refuses all requests.
type refusing struct{ still }

func (refusing) Propose(state.Request, state.Waiter) error { return errors.New("no") }

// loose makes a connection with a session, over the state st. No goroutine serves it.
func loose(t testing.TB, st *state.State) *Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close() })
	c := newConn(quietly(t, options.Options{}), b, nil)
	c.replica = still{st}
	c.proof.IDs.Store(identity.Unproved(c.from.Host, false))
	c.session = 1
	return c
}

// still is a replica of a server that knows no leader.
type still struct{ st *state.State }

func (s still) Propose(state.Request, state.Waiter) error {
	panic("nothing is written without a leader")
}

func (s still) View(f func(*state.State))            { f(s.st) }
func (s still) WaitZxid(context.Context, int64) bool { return false }
func (s still) Zxid() int64                          { return s.st.Zxid() }
func (s still) PingOK(time.Duration) bool            { return false }
