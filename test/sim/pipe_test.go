package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// connected() returns a network with a connection from host a to host b.
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

// A writer that waits for room learns that its peer has ended as soon as the wire is whole again, and not
// earlier. It does not wait for its own deadline, which may be minutes later.
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

// No host hears anything more from a process that has ended, even a host that its last bytes have not reached
// yet.
func TestNobodyHearsOfAProcessThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, near, far := connected(t)
		n.Freeze("b")
		n.Crash("a")
		if _, err := near.Write([]byte("all is durable")); err == nil {
			t.Error("the frozen process still sends")
		}
		n.Thaw("b")
		heard, err := far.Read(make([]byte, 100))
		expect.Equal(t, heard, 0, "bytes heard")
		expect.Fails(t, err)
		near.Close()
		far.Close()
	})
}

// A follower that was away while clients wrote much catches up over a link of 20 Mbit/s. It needs little more
// time than the bytes need, and the leader stays the leader.
func TestR11FollowerCatchesUpOverASlowLink(t *testing.T) {
	if testing.Short() {
		t.Skip("300 MB of writes")
	}
	const size, entries, rate = 1_000_000, 100, 20_000_000 / 8
	quiet(t, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		term := c.server(leader).Node().Status().Term
		behind := others[0]
		c.crash(behind)
		w := c.client("c0", leader, 40*time.Second)
		w.Timeout = time.Minute
		must.Get(w.Create("/n", nil, 0))(t)
		for k := range entries {
			must.Get(w.SetData("/n", fmt.Appendf(make([]byte, 0, size), "%0*d", size, k), -1))(t)
		}
		c.net.Throttle(rate)
		c.start(behind)
		began := time.Now()
		for c.server(behind).Node().Zxid() < c.server(leader).Node().Zxid() {
			if time.Since(began) > 3*size*entries/rate*time.Second {
				t.Fatalf("server %d is at zxid %d of %d after %v", behind, c.server(behind).Node().Zxid(),
					c.server(leader).Node().Zxid(), time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%d entries of %d bytes caught up in %v, the bytes alone take %v", entries, size,
			time.Since(began).Round(time.Millisecond), size*entries/rate*time.Second)
		st := c.server(leader).Node().Status()
		expect.Equal(t, st.Role, "leader", "the leader of term: role")
		expect.Equal(t, st.Term, term, "the leader of term")
		c.net.Throttle(0)
	})
}
