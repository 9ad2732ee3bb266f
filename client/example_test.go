package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/server"
)

// address returns the address of a server for the examples: in a program it is
// something like "zk1:2181,zk2:2181,zk3:2181".
var address = sync.OnceValue(func() string {
	ctx := context.Background()
	s, err := server.Start(ctx, server.Options{
		ClientAddr: "127.0.0.1:0",
		Logger:     slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.Ready(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	return s.ClientAddr()
})

// dial returns a client for the examples that do not show Dial.
func dial() *client.Client {
	c, err := client.Dial(context.Background(), address())
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, address())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	lease, err := c.Mutex("/jobs/nightly").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	// Work with the lease's context: it ends when the lock is lost. Send the
	// token along, so that resources can refuse former holders.
	fmt.Println(lease.Context().Err(), lease.Token() > 0, lease.Valid())
	// Output: <nil> true true
}

func ExampleMutex_Do() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	err := c.Mutex("/jobs/report").Do(ctx, func(ctx context.Context, l *client.Lease) error {
		fmt.Println("holding", l.Path())
		return nil
	})
	fmt.Println(err)
	// Output:
	// holding /jobs/report
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	m := c.Mutex("/jobs/hourly")

	lease, err := m.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := m.TryLock(ctx); errors.Is(err, client.ErrNotAcquired) {
		fmt.Println("it is held")
	}
	// The context limits the wait.
	limited, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := m.Lock(limited); errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("still has it")
	}
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// it is held
	// still has it
	// <nil>
}

func ExampleRWMutex() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	m := c.RWMutex("/config")

	w, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// The holder may go on reading what it wrote: no writer gets in between.
	if err := w.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := m.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Mode(), r.Mode())
	r.Unlock(ctx)
	w.Unlock(ctx)
	// Output: shared shared
}

func ExampleLease_Upgrade() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	m := c.RWMutex("/catalogue", client.WithPolicy(client.PolicyReader))

	l, err := m.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
	switch err := l.Upgrade(ctx); {
	case errors.Is(err, client.ErrUpgradeConflict):
		// Another reader upgrades and waits for us: unlock, and begin again.
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(l.Mode())
	// Output: exclusive
}

func ExampleSemaphore() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	s := c.Semaphore("/licences", 3)

	two, err := s.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.TryAcquire(ctx, 2)
	fmt.Println(errors.Is(err, client.ErrNotAcquired))
	one, err := s.TryAcquire(ctx, 1)
	fmt.Println(err)
	one.Unlock(ctx)
	two.Unlock(ctx)
	// Output:
	// true
	// <nil>
}

func ExampleElection() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)
	el := c.Election("/services/scheduler")

	watching, stop := context.WithCancel(ctx)
	leaders := el.Observe(watching)
	<-leaders // no candidate leads yet

	lease, err := el.Campaign(ctx, []byte("10.0.0.7:9000"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", (<-leaders).Value)
	if err := lease.Publish(ctx, []byte("10.0.0.7:9001")); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", (<-leaders).Value)
	stop()
	lease.Unlock(ctx)
	// Output:
	// 10.0.0.7:9000
	// 10.0.0.7:9001
}

func ExampleClient_All() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	// Two programs that name the same locks in different orders cannot deadlock.
	l, err := c.All(ctx, c.Mutex("/accounts/7").Request(), c.Mutex("/accounts/3").Request(),
		c.RWMutex("/rates").Request(fence.Shared))
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range l.Sequencers() {
		fmt.Println(s.Path, s.Mode, s.Token > 0)
	}
	fmt.Println(l.Unlock(ctx))
	// Output:
	// /accounts/3 exclusive true
	// /accounts/7 exclusive true
	// /rates shared true
	// <nil>
}

func ExampleLease_Txn() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	l, err := c.Mutex("/locks/state").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// The write takes effect only while the lock is held: no clock is involved.
	_, err = l.Txn(ctx, zk.Create{Path: "/state", Data: []byte("v1")})
	fmt.Println(err)
	l.Unlock(ctx)
	_, err = l.Txn(ctx, zk.SetData{Path: "/state", Data: []byte("v2"), Version: -1})
	fmt.Println(errors.Is(err, client.ErrNotHeld))
	// Output:
	// <nil>
	// true
}

func ExampleWithReentrant() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	// The context carries the lock, so functions that take the same lock can be called.
	save := func(ctx context.Context) error {
		return c.Mutex("/doc", client.WithReentrant()).Do(ctx, func(context.Context, *client.Lease) error {
			return nil
		})
	}
	l, err := c.Mutex("/doc", client.WithReentrant()).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(save(l.Context()))
	l.Unlock(ctx)

	// Without WithReentrant, a call that would wait for its own lease returns an error.
	l, err = c.Mutex("/doc").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Mutex("/doc").Lock(l.Context())
	fmt.Println(errors.Is(err, client.ErrSelfDeadlock))
	l.Unlock(ctx)
	// Output:
	// <nil>
	// true
}

func ExampleLease_Asked() {
	ctx := context.Background()
	c := dial()
	defer c.Close(ctx)

	l, err := c.Mutex("/maintenance").Lock(ctx, client.WithReason("reindexing"))
	if err != nil {
		log.Fatal(err)
	}
	// An operator asks for the lock.
	q, err := c.Inspector().Inspect(ctx, "/maintenance")
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Inspector().Revoke(ctx, q.Path, q.Holders[0].Node, recipe.Revocation{
		By: "ops", Reason: "deploy"}); err != nil {
		log.Fatal(err)
	}
	// The holder gets the request, and gives the lock back when it is ready.
	r := <-l.Asked()
	fmt.Println(q.Holders[0].Owner.Reason, "gives way to", r.Reason)
	l.Unlock(ctx)
	// Output: reindexing gives way to deploy
}
