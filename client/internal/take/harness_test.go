package take

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
)

// server is the server that the tests share; each test uses a directory of its own.
var server = cluster.Shared{Options: func() cluster.Options {
	return cluster.ShortSessions(cluster.Zlockd, 1)
}}

func TestMain(m *testing.M) {
	code := m.Run()
	server.Close()
	// Allowed to remain: the goroutine that removes the nodes of a stub. It never ends without a connection.
	os.Exit(leak.AtEnd(code, "zlockd/zlockd/client", "/session.(*Epoch).reapOnce+"))
}

const patience = 30 * time.Second

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dial returns a client of the shared server.
func dial(t *testing.T) (*Client, *session.Epoch) {
	t.Helper()
	k := must.Get(session.New(server.Addr(t), session.Options{Timeout: 12 * time.Second, Safety: -1,
		Clock: session.SystemClock(), Log: slog.New(slog.DiscardHandler)}))(t)
	must.OK(t, k.Begin(func(error) {}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		k.Close(ctx)
		cancel()
	})
	must.OK(t, k.Greet(ctx))
	return New(k, recipe.Owner{}, lossItself), must.Get(k.Await(ctx))(t)
}

// withoutServer returns a client without a server, and a session with a timeout of ten seconds.
func withoutServer() (*Client, *session.Epoch) {
	k, e := session.Stub(session.Bubble(), 7, 10*time.Second, nil)
	return New(k, recipe.Owner{}, lossItself), e
}

func lossItself(l hold.Loss) error { return l }

// lostFor ends the test unless err is the loss of a lease whose reason is `why`.
func lostFor(t testing.TB, err error, why hold.Reason) {
	t.Helper()
	lost, ok := errors.AsType[hold.Loss](err)
	must.That(t, ok, "got the error %v, want the loss because of %v", err, why)
	must.Equal(t, lost.Reason, why, "the reason of the loss")
}
