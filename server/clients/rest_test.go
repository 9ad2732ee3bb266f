package clients

import (
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// memConn is the server's end of a connection that is nothing but memory, and
// little of it: what is measured is the server's. It keeps no deadlines.
type memConn struct {
	toServer chan []byte
	rest     []byte // of what was taken from it
	closed   sync.Once
	addr     *net.TCPAddr

	mu       sync.Mutex
	toClient []byte
}

func (c *memConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		b, open := <-c.toServer
		if !open {
			return 0, net.ErrClosed
		}
		c.rest = b
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *memConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.toClient = append(c.toClient, b...)
	c.mu.Unlock()
	return len(b), nil
}

func (c *memConn) Close() error                     { c.closed.Do(func() { close(c.toServer) }); return nil }
func (c *memConn) LocalAddr() net.Addr              { return c.addr }
func (c *memConn) RemoteAddr() net.Addr             { return c.addr }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// take waits for a frame from the server.
func (c *memConn) take() []byte {
	for {
		c.mu.Lock()
		if len(c.toClient) >= 4 {
			if n := 4 + int(binary.BigEndian.Uint32(c.toClient)); len(c.toClient) >= n {
				frame := c.toClient[4:n]
				c.toClient = nil
				c.mu.Unlock()
				return frame
			}
		}
		c.mu.Unlock()
		runtime.Gosched()
	}
}

// living is what the process has in live objects and stacks.
func living() (heap, stacks int) {
	var m runtime.MemStats
	for range 3 { // stacks shrink by half each time
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleSessionsTakeLittle bounds the memory of a session whose client only
// pings. ZLOCKD_SESSIONS=100000 measures as many.
func TestIdleSessionsTakeLittle(t *testing.T) {
	n := 2000
	if v := os.Getenv("ZLOCKD_SESSIONS"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	ln := newPipeListener()
	newRigOn(t, Options{MaxConns: -1, MaxConnsPerAddr: -1, MaxSessionTimeout: time.Hour}, ln)
	conns, addr := make([]*memConn, n), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for i := range conns {
		conns[i] = &memConn{toServer: make(chan []byte, 1), addr: addr}
	}
	hello := wire.AppendConnectRequest(nil, wire.NewSession(3_600_000))
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	heap, stacks := living()
	began := time.Now()
	for _, c := range conns {
		ln.conns <- c
		c.toServer <- hello
	}
	for _, c := range conns {
		if frame := c.take(); binary.BigEndian.Uint32(frame[4:]) == 0 {
			t.Fatal("no session")
		}
	}
	took := time.Since(began)
	pingAll := func() {
		for _, c := range conns {
			c.toServer <- ping
		}
		for _, c := range conns {
			c.take()
		}
	}
	pingAll()
	heap2, stacks2 := living()
	before := cpu()
	for range 3 {
		pingAll()
	}
	each := (cpu() - before) / time.Duration(3*n)
	h, s := (heap2-heap)/n, (stacks2-stacks)/n
	t.Logf("%d sessions in %v: each %d bytes, of them %d of stack; a ping %v of processor", n,
		took.Round(time.Millisecond), h+s, s, each)
	// Few sessions share what there is once: buckets of maps, spans of stacks.
	if most := 4096 + 2_000_000/n; h+s > most && !raceDetector {
		t.Errorf("an idle session takes %d bytes, %d of heap and %d of stack", h+s, h, s)
	}
	runtime.KeepAlive(conns)
}
