package admin

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// adminPort serves /busy, which answers when it is told, and everything else at
// once.
func adminPort(t *testing.T) (addr string, busyNow chan struct{}, answer chan struct{}) {
	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	busyNow, answer = make(chan struct{}, 2*maxConns), make(chan struct{})
	s := httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			busyNow <- struct{}{}
			<-answer
		}
		_, _ = io.WriteString(w, "ok")
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(LimitListener(inner)) }()
	t.Cleanup(func() { s.Close(); <-done })
	return inner.Addr().String(), busyNow, answer
}

func dialAdmin(t *testing.T, addr, send string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	must.Get(io.WriteString(c, send))(t)
	return c
}

// ask reports whether a new connection is answered.
func askAdmin(addr string) error {
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + addr + "/health")
	if err == nil {
		err = r.Body.Close()
	}
	return err
}

// Connections that rest, or that never say what they want, give way to new ones.
func TestIdleConnectionsDoNotKeepHealthChecksOut(t *testing.T) {
	for what, send := range map[string]string{
		"silent": "", "kept alive": "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", "slow": "GET /health HT"} {
		t.Run(what, func(t *testing.T) {
			addr, _, _ := adminPort(t)
			for range maxConns + 50 {
				dialAdmin(t, addr, send)
			}
			for range 5 {
				expect.OK(t, askAdmin(addr))
			}
		})
	}
}

// A request that is being answered is not cut off for a new connection, and the
// connections stay bounded.
func TestBusyConnectionsKeepTheirPlace(t *testing.T) {
	addr, busyNow, answer := adminPort(t)
	var conns []net.Conn
	for range maxConns {
		conns = append(conns, dialAdmin(t, addr, "GET /busy HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		<-busyNow
	}
	one := make(chan error, 1)
	go func() { one <- askAdmin(addr) }()
	select {
	case err := <-one:
		t.Fatalf("one too many is answered: %v", err)
	case <-time.After(50 * time.Millisecond): // it waits; longer would prove no more
	}
	close(answer)
	expect.OK(t, <-one)
	for _, c := range conns[len(conns)/2:] {
		b := make([]byte, 15)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 200 OK" {
			t.Fatalf("a busy connection gets %q, %v", b, err)
		}
	}
}

// A connection counts once, however often it is closed, and an Accept that waits for room hears
// of the end.
func TestRoomIsGivenBackOnce(t *testing.T) {
	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ln := LimitListener(inner).(*limitListener)
	dialAdmin(t, inner.Addr().String(), "")
	c := must.Get(ln.Accept())(t)
	c.Close()
	c.Close()
	expect.That(t, len(ln.conns) == 0 && len(ln.from) == 0,
		"%d connections of %d addresses are left", len(ln.conns), len(ln.from))
	ended := make(chan error, 1)
	go func() { _, err := ln.Accept(); ended <- err }()
	ln.Close()
	expect.That(t, <-ended != nil, "Accept goes on after Close")
}
