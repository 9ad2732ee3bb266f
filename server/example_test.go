package server_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// One server, in memory. With DataDir it keeps everything on disk.
func Example() {
	ctx := context.Background()
	s, err := server.Start(ctx, server.Options{ClientAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	if err := s.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("mode:", s.Status(0).Mode)
	fmt.Println("lock:", lock(s.ClientAddr()))
	// Output:
	// mode: standalone
	// lock: held
}

// Three servers. Usually each server runs in its own process on its own machine. All of them get the same
// Peers. The first time, Start returns when all servers have been started.
func Example_cluster() {
	ctx := context.Background()
	peers := map[uint32]string{1: freeAddr(), 2: freeAddr(), 3: freeAddr()} // such as "zk1.example.org:2888"
	var servers [3]*server.Instance
	var addrs [3]string
	var wg sync.WaitGroup
	for n := range servers {
		wg.Go(func() {
			s, err := server.Start(ctx, server.Options{
				ID: uint32(n + 1), ClientAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
				Peers: peers, PeerInsecure: true, // in production, use PeerTLS and a DataDir
			})
			if err == nil {
				err = s.Ready(ctx)
			}
			if err != nil {
				log.Fatal(err)
			}
			servers[n], addrs[n] = s, s.ClientAddr()
		})
	}
	wg.Wait()
	for _, s := range servers {
		defer s.Close(ctx)
	}
	fmt.Println("lock:", lock(addrs[:]...))
	// Output: lock: held
}

// A server for a test, which package zlocktest starts and ends: in a test, write
// zlocktest.Start(t) instead of Open and Close.
func Example_test() {
	s := zlocktest.Open()
	defer s.Close()
	fmt.Println("lock:", lock(s.Addr))
	s.Restart() // the server keeps its state
	fmt.Println("lock:", lock(s.Addr))
	// Output:
	// lock: held
	// lock: held
}

// lock takes a lock and gives it back.
func lock(addrs ...string) string {
	ctx := context.Background()
	c, err := client.Dial(ctx, strings.Join(addrs, ","))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	lease, err := c.Mutex("/jobs/nightly").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	return "held"
}

// freeAddr returns a loopback address on which no other test listens.
func freeAddr() string {
	list, err := cluster.FreePorts(1)
	if err != nil {
		log.Fatal(err)
	}
	return list[0]
}
