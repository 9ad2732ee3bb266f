package server

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// start runs a server with a client port until the test ends, and connects a
// client to it.
func start(t *testing.T, o Options) (*Instance, *wire.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o.ClientAddr = "127.0.0.1:0"
	i := must.Get(Start(ctx, o))(t)
	t.Cleanup(func() { must.OK(t, i.Close(context.Background())) })
	must.OK(t, i.Ready(ctx))
	c := must.Get(wire.Open(i.ClientAddr()))(t)
	t.Cleanup(func() { c.Close() })
	return i, c
}

// create makes a node.
func create(t *testing.T, c *wire.Conn, path string, flags int32) {
	t.Helper()
	must.Get(c.Create(path, nil, flags))(t)
}

func TestStartServesOnTheAddressItTells(t *testing.T) {
	_, c := start(t, Options{AdminAddr: "127.0.0.1:0"})
	create(t, c, "/a", 0)
}

func TestShutdownClosesClientsAndLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	i := must.Get(Start(t.Context(), Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0"}))(t)
	must.OK(t, i.Ready(t.Context()))
	var conns []*wire.Conn
	for n := range 30 {
		c := must.Get(wire.Dial(i.ClientAddr()))(t)
		defer c.Close()
		if n%3 > 0 {
			must.OK(t, c.Connect(wire.NewSession(10000)))
			conns = append(conns, c)
		}
		if n%3 == 2 { // requests under way
			for range 50 {
				must.Get(c.Send(jute.OpCreate, wire.Create("/s-", nil, jute.WorldAnyone, 2)))(t)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must.OK(t, i.Close(ctx))
	for _, c := range conns {
		for {
			if _, err := c.ReadFrame(); err == io.EOF {
				break
			} else if err != nil && !strings.Contains(err.Error(), "cut short") {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(
		time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines where there were %d", runtime.NumGoroutine(), before)
		}
	}
}
