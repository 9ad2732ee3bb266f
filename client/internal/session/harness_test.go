package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// server is the server that the tests share; each uses a directory of its own.
var server struct {
	once  sync.Once
	e     *cluster.Ensemble
	err   error
	count atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.e != nil {
		server.e.Close()
	}
	os.Exit(code)
}

// addr is the shared server's address.
func addr(t *testing.T) string {
	t.Helper()
	server.once.Do(func() {
		server.e, server.err = cluster.Start(cluster.Options{Kind: cluster.Zlockd, Nodes: 1, Dev: true,
			Flags: []string{"--tick-time", "200ms", "--min-session-timeout", "400ms",
				"--max-session-timeout", "60s"}})
	})
	must.OK(t, server.err)
	return server.e.Servers[0].Client
}

const patience = 30 * time.Second

// open returns a keeper with a usable session.
func open(t *testing.T, servers string, o Options) (*Keeper, *Epoch) {
	t.Helper()
	o.Timeout, o.Safety, o.Clock = max(o.Timeout, 12*time.Second), -1, SystemClock()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := must.Get(New(servers, o))(t)
	must.OK(t, k.Begin(func(error) {}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		k.Close(ctx)
		cancel()
	})
	must.OK(t, k.Greet(ctx))
	return k, must.Get(k.Await(ctx))(t)
}

// dir is a path of the test's own.
func dir(t *testing.T) string {
	return fmt.Sprintf("/t/%s-%d", strings.ReplaceAll(t.Name(), "/", "_"), server.count.Add(1))
}

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// fresh returns an id that no other node has.
func fresh() recipe.ID { return recipe.NewID(7, uint64(server.count.Add(1))) }

// has waits until a directory has so many nodes.
func has(t *testing.T, e *Epoch, dir string, n int) {
	t.Helper()
	must.Await(t, fmt.Sprintf("%d nodes in %s", n, dir), patience, func() bool {
		names, err := e.relist(testCtx(t), dir)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return err == nil && len(names) == n
	})
}

// dependent notes why its session ended.
type dependent struct{ why []Reason }

func (d *dependent) EpochOver(why Reason) { d.why = append(d.why, why) }

// isClosed reports whether a channel is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
