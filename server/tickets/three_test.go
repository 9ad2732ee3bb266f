package tickets_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/test/must"
)

// bearers() returns tokens. One of them has wide limits.
func bearers(t testing.TB) *tickets.Tokens {
	file := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(file, fmt.Appendf(nil,
		"all %x / tickets=9999 path=9999 waits=2000 rate=99999\n", sha256.Sum256([]byte("of-all"))), 0o600))
	return must.Get(tickets.ReadTokens(file))(t)
}

const bearer = "Authorization: Bearer of-all"

// The type three is a cluster of three servers with ports for tickets.
type three struct {
	t      *testing.T
	change func(n int, o *server.Options)
	peers  map[uint32]string
	dirs   [3]string

	mu   sync.Mutex
	list [3]*server.Instance
	at   [3]string
}

func startThree(t *testing.T, change func(n int, o *server.Options)) *three {
	c := &three{t: t, change: change, peers: map[uint32]string{}}
	for n := range 3 {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		c.peers[uint32(n+1)], c.dirs[n] = l.Addr().String(), t.TempDir()
		l.Close()
	}
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() { c.up(n) })
	}
	all.Wait()
	must.That(t, !t.Failed(), "a server does not start")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, i := range c.list {
		t.Cleanup(func() { c.close(i) })
		must.OK(t, i.Ready(ctx))
	}
	return c
}

func (c *three) close(i *server.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = i.Close(ctx)
}

func (c *three) up(n int) {
	o := server.Options{ID: uint32(n + 1), AdminAddr: "127.0.0.1:0", ClientAddr: "127.0.0.1:0",
		TicketAddr: "127.0.0.1:0", Peers: c.peers, DataDir: c.dirs[n], Logger: slog.New(slog.DiscardHandler)}
	c.change(n, &o)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	i, err := server.Start(ctx, o)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list[n], c.at[n] = i, i.TicketAddr()
}

// addr() returns the address of the port for tickets of server n%3.
func (c *three) addr(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[n%3]
}

// killLeader stops the leader as abruptly as the end of its process would, and starts it again. It returns
// how many leaders it stopped.
func (c *three) killLeader() int {
	for n, i := range c.list {
		if i.Node().Status().Role == "leader" {
			i.Node().Abort()
			c.close(i)
			c.up(n)
			c.t.Cleanup(func() { c.close(c.list[n]) })
			return 1
		}
	}
	return 0
}
