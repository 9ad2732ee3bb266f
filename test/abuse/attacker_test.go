package abuse

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// perAddr is the number of connections that a server accepts from one address by default.
const perAddr = 60

// attacker is a client without rights, with an address of its own.
type attacker struct {
	ctx context.Context
	targets
}

// targets are the attacked servers.
type targets struct {
	Leader, Follower target
	All              []target
}

// target is where a server listens.
type target struct{ Client, Admin, Peer, Ticket string }

// launch() runs an attack in a process of the lowest priority, as if the attacker had a machine of its own.
func launch(name string, to targets, lasts time.Duration) error {
	b, err := json.Marshal(to)
	if err != nil {
		return err
	}
	c := exec.Command("nice", "-n", "19", os.Args[0], "-test.run", "^TestAttacker$", "-test.count", "1")
	c.Env = append(os.Environ(), "ABUSE_ATTACK="+name, "ABUSE_TARGETS="+string(b), "ABUSE_TIME="+lasts.String())
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// dial() connects from the attacker's own address.
func (a *attacker) dial(addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}, Timeout: 5 * time.Second}
	return d.DialContext(a.ctx, "tcp", addr)
}

// each() runs f in n goroutines. Each goroutine calls f again after f returns, until the attack ends.
func (a *attacker) each(n int, f func(i int) error) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for a.ctx.Err() == nil {
				if f(i) != nil {
					a.pause(20 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

func (a *attacker) pause(d time.Duration) {
	select {
	case <-a.ctx.Done():
	case <-time.After(d):
	}
}

// raw() calls f with a bare connection, which it closes when the attack ends.
func (a *attacker) raw(addr string, f func(c net.Conn) error) error {
	c, err := a.dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(a.ctx, func() { c.Close() })()
	return f(c)
}

// session() calls f with a connection that has a session.
func (a *attacker) session(s target, f func(c *wire.Conn) error) error {
	return a.raw(s.Client, func(nc net.Conn) error {
		c := wire.New(nc)
		if err := c.Connect(wire.NewSession(40000)); err != nil {
			return err
		}
		return f(c)
	})
}

// sessions() calls session() for n connections to each of the servers `on`.
func (a *attacker) sessions(n int, on []target, f func(c *wire.Conn, i int) error) {
	a.each(n*len(on), func(i int) error {
		return a.session(on[i%len(on)], func(c *wire.Conn) error { return f(c, i) })
	})
}

// hold() keeps a connection until the server closes it or the attack ends.
func hold(c net.Conn) error {
	c.SetReadDeadline(time.Time{})
	var b [1]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // read one byte now and then
	}
}

// flood() sends requests as fast as the server takes them, and discards the answers.
func flood(c *wire.Conn, request func(k int) []byte) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.SetReadDeadline(time.Time{})
		io.Copy(io.Discard, c)
	}()
	defer func() { c.Close(); <-done }()
	for k := 0; ; k++ {
		if err := c.WriteRaw(request(k)); err != nil {
			return err
		}
	}
}

// request() returns the frame of a request.
func request(k int, op jute.OpCode, body []byte) []byte {
	return wire.AppendRequest(nil, int32(k&0x7fffffff), op, body)
}

// halfSetWatches sends the beginning of a setWatches of 60 MB.
func halfSetWatches(c net.Conn) error {
	const path, paths = 10_000, 6000
	b := binary.BigEndian.AppendUint32(nil, 20+paths*(4+path)+8)
	b = jute.AppendInt(b, 1)
	b = jute.AppendInt(b, int32(jute.OpSetWatches))
	b = jute.AppendLong(b, 1<<60)
	b = jute.AppendInt(b, paths)
	if _, err := c.Write(b); err != nil {
		return err
	}
	one := append(binary.BigEndian.AppendUint32(nil, path), make([]byte, path)...)
	for range paths - 1 {
		if _, err := c.Write(one); err != nil {
			return err
		}
	}
	return hold(c)
}

var errEnough = errors.New("enough")
