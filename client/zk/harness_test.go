package zk_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

const patience = 30 * time.Second

// both() runs a test against zlockd, and against a real ZooKeeper if one is installed and the run is not
// short.
func both(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("zlockd", func(t *testing.T) {
		leak.Check(t)
		s := zlocktest.Config{MinSessionTimeout: 400 * time.Millisecond,
			SweepInterval: 100 * time.Millisecond}.Start(t)
		test(t, s.Addr)
	})
	t.Run("zookeeper", func(t *testing.T) {
		// The sessions have the usual timeouts, because client and server may stall for a while.
		s := cluster.StartZooKeeper(t, "extendedTypesEnabled=true", "forceSync=no", "tickTime=200",
			"maxSessionTimeout=40000", "znode.container.checkIntervalMs=100")
		test(t, s.Client)
	})
}

func TestMain(m *testing.M) { os.Exit(leak.AtEnd(m.Run(), "zlockd/zlockd/client")) }

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, servers string, opt zk.Options) *zk.Conn {
	t.Helper()
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	c := must.Get(zk.Dial(within(t), servers, opt))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// proxied connects through a new proxy.
func proxied(t testing.TB, addr string, opt zk.Options) (*zk.Conn, *faultproxy.Proxy) {
	t.Helper()
	p := must.Get(faultproxy.New(addr))(t)
	t.Cleanup(p.Close)
	return dial(t, p.Addr(), opt), p
}

func is(t testing.TB, err, want error) {
	t.Helper()
	must.Is(t, err, want, "error %v", err)
}

func soon[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

func fired(t testing.TB, w *zk.Watch) zk.EventType {
	t.Helper()
	soon(t, "a watch", w.Fired())
	return w.Event().Type
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func node(t testing.TB, c *zk.Conn, path, data string) {
	t.Helper()
	must.Get(c.Create(within(t), zk.Create{Path: path, Data: []byte(data)}))(t)
}
