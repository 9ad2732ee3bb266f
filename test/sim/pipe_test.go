package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// connected returns a network with a connection from host a to host b.
func connected(t *testing.T) (n *Network, near, far net.Conn) {
	t.Helper()
	n = NewNetwork(rand.New(rand.NewPCG(1, 1)), time.Millisecond)
	l, err := n.Listen("b:1")
	must.OK(t, err)
	if near, err = n.Dialer("a")(context.Background(), "b:1"); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return n, near, far
}

// Who waits for room hears of the other end's death as soon as the wire is whole
// again, not before, and not when its own deadline comes, which may be minutes later.
func TestWriterBehindACutHearsOfTheEnd(t *testing.T) {
	for name, end := range map[string]func(n *Network, far net.Conn){
		"closed":  func(_ *Network, far net.Conn) { far.Close() },
		"crashed": func(n *Network, _ net.Conn) { n.Crash("b") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, near, far := connected(t)
				n.Cut("b", "a")
				ended := make(chan error, 1)
				go func() {
					for {
						if _, err := near.Write(make([]byte, pipeRoom)); err != nil {
							ended <- err
							return
						}
					}
				}()
				synctest.Wait()
				end(n, far)
				time.Sleep(time.Second)
				select {
				case err := <-ended:
					t.Fatalf("the writer heard of it through a wire that is cut: %v", err)
				default:
				}
				n.Heal()
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, syscall.EPIPE) {
						t.Errorf("the write ended with %v", err)
					}
				default:
					t.Error("the writer still waits although the wire is whole")
					near.Close()
				}
			})
		})
	}
}

// A process that is gone says nothing more, also to a host that is not reached.
func TestNobodyHearsOfAProcessThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := connected(t)
		n.Freeze("b")
		n.Crash("a")
		if _, err := near.Write([]byte("all is durable")); err == nil {
			t.Error("it goes on talking")
		}
		n.Thaw("b")
		if n, err := far.Read(make([]byte, 100)); n > 0 || err == nil {
			t.Errorf("%d bytes are heard, %v", n, err)
		}
		near.Close()
		far.Close()
	})
}
