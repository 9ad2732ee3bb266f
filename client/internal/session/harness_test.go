package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
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
	os.Exit(leak.AtEnd(code, "zlockd/zlockd/client"))
}

const patience = 30 * time.Second

// open() returns a keeper with a usable session.
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

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ids counts the ids that fresh() has returned.
var ids atomic.Uint64

// fresh() returns an id that no other node has.
func fresh() recipe.ID { return recipe.NewID(7, ids.Add(1)) }

// has() waits until the directory dir contains n nodes.
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
