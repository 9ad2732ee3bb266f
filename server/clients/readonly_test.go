package clients

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// still is a replica of a server that knows no leader.
type still struct{ st *state.State }

func (s still) Propose(state.Request, state.Waiter) error {
	panic("nothing is written without a leader")
}
func (s still) View(f func(*state.State))            { f(s.st) }
func (s still) WaitZxid(context.Context, int64) bool { return false }
func (s still) Zxid() int64                          { return s.st.Zxid() }
func (s still) PingOK(time.Duration) bool            { return false }

// Without a leader no server asks which clients were heard from, for as long as that lasts:
// connections that have ended must not wait for it.
func TestReadOnlyConnectionsAreNotRemembered(t *testing.T) {
	s, err := New(Options{Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		must.OK(t, s.Shutdown(t.Context()))
		must.OK(t, <-served)
	}()
	s.UseMeanwhile(still{state.New("test")})
	s.ReadOnly(true)
	for range 20 {
		c, err := wire.Dial(ln.Addr().String())
		must.OK(t, err)
		hello := wire.NewSession(30000)
		hello.ReadOnly = true
		must.OK(t, c.Connect(hello))
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/", true))
		_, err = c.Drop()
		must.OK(t, err)
	}
	eventually(t, "no connection is left", func() bool { return len(s.all()) == 0 })
	if n := len(s.heard.swap()); n > 0 {
		t.Errorf("%d connections that have ended are remembered", n)
	}
}
