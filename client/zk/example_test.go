package zk_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/zlocktest"
)

var servers = ""

// withServer runs an example against a server of its own.
func withServer(f func(ctx context.Context) error) {
	s := zlocktest.Open()
	defer s.Close()
	servers = s.Addr
	if err := f(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func Example() {
	withServer(func(ctx context.Context) error {
		conn, err := zk.Dial(ctx, servers, zk.Options{})
		if err != nil {
			return err
		}
		defer conn.Close(ctx)

		if _, err := conn.Create(ctx, zk.Create{Path: "/greeting", Data: []byte("hello")}); err != nil {
			return err
		}
		node, err := conn.Get(ctx, "/greeting")
		if err != nil {
			return err
		}
		_, err = conn.Set(ctx, "/greeting", []byte("bye"), node.Stat.Version+1)
		fmt.Println(string(node.Data), errors.Is(err, zk.ErrBadVersion))
		return nil
	})
	// Output: hello true
}

// A watch reports the next change after the read that set it. So a loop of reads always arrives at the newest
// state.
func ExampleConn_GetW() {
	withServer(func(ctx context.Context) error {
		conn, err := zk.Dial(ctx, servers, zk.Options{})
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		conn.Create(ctx, zk.Create{Path: "/config", Data: []byte("1")})
		go conn.Set(ctx, "/config", []byte("2"), -1)
		for {
			node, changed, err := conn.GetW(ctx, "/config")
			if err != nil {
				return err
			}
			if string(node.Data) == "2" {
				fmt.Println("configured")
				return nil
			}
			<-changed.Fired()
		}
	})
	// Output: configured
}

// Requests of one Pipe take one round trip.
func ExamplePipe() {
	withServer(func(ctx context.Context) error {
		conn, err := zk.Dial(ctx, servers, zk.Options{})
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		pipe := conn.Pipe()
		pipe.Create(zk.Create{Path: "/queue"})
		made := pipe.Create(zk.Create{Path: "/queue/n-", Mode: zk.EphemeralSequential})
		list := pipe.Names("/queue")
		pipe.Send()
		node, err := made.Wait(ctx)
		if err != nil {
			return err
		}
		names, err := list.Wait(ctx)
		fmt.Println(node.Path, names.List(), err)
		return nil
	})
	// Output: /queue/n-0000000000 [n-0000000000] <nil>
}

// A transaction happens wholly or not at all, and says which operation failed.
func ExampleConn_Multi() {
	withServer(func(ctx context.Context) error {
		conn, err := zk.Dial(ctx, servers, zk.Options{})
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Multi(ctx, zk.Create{Path: "/a"}, zk.Check{Path: "/b", Version: 3})
		var refused *zk.MultiError
		if errors.As(err, &refused) {
			fmt.Println("operation", refused.Index, errors.Is(err, zk.ErrNoNode))
		}
		return nil
	})
	// Output: operation 1 true
}

// A recursive subscription reports all changes below a node.
func ExampleConn_Subscribe() {
	withServer(func(ctx context.Context) error {
		conn, err := zk.Dial(ctx, servers, zk.Options{})
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		events, err := conn.Subscribe(ctx, "/app", true)
		if err != nil {
			return err
		}
		if err := conn.MakePath(ctx, "/app/servers/1", zk.Persistent, nil); err != nil {
			return err
		}
		for range 3 {
			ev, err := events.Next(ctx)
			if err != nil {
				return err
			}
			fmt.Println(ev.Type, ev.Path)
		}
		return events.Close(ctx)
	})
	// Output:
	// NodeCreated /app
	// NodeCreated /app/servers
	// NodeCreated /app/servers/1
}
