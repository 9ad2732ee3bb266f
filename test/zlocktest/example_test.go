package zlocktest_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/zlocktest"
)

// In a test, write zlocktest.Start(t) instead of Open and Close.
func Example() {
	s := zlocktest.Open()
	defer s.Close()
	conn := s.Connect()
	path, err := conn.Create("/job-", []byte("payload"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
	fmt.Println(path, err)
	// Output: /job-0000000000 <nil>
}

// The lock of a client that loses its session goes to the next waiter.
func ExampleServer_KillSession() {
	s := zlocktest.Open()
	defer s.Close()
	holder, next := s.Connect(), s.Connect()
	lock := zk.NewLock(holder, "/lock", zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		fmt.Println(err)
	}

	s.KillSession(holder.SessionID())

	waiter := zk.NewLock(next, "/lock", zk.WorldACL(zk.PermAll))
	fmt.Println("next in line:", waiter.Lock())
	// Output: next in line: <nil>
}

// A client notices when the network fails for a while.
func ExampleLink() {
	s := zlocktest.Open()
	defer s.Close()
	link := s.Link()
	conn := link.Connect()
	session := conn.SessionID()

	link.Cut()
	_, _, err := conn.Get("/")
	fmt.Println("reads fail:", err != nil)

	link.Mend()
	for conn.State() != zk.StateHasSession {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("same session:", conn.SessionID() == session)
	// Output:
	// reads fail: true
	// same session: true
}
