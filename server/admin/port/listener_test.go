package port

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// adminPort serves a port. The answer to /busy waits for the channel `answer`, and every other request is
// answered at once.
func adminPort(t *testing.T) (addr string, busyNow chan struct{}, answer chan struct{}) {
	inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	busyNow, answer = make(chan struct{}, 2*maxConns), make(chan struct{})
	s := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// askAdmin returns an error if a request on a new connection gets no answer.
func askAdmin(addr string) error {
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + addr + "/health")
	if err == nil {
		err = r.Body.Close()
	}
	return err
}

// A port with TLS refuses clear text unless it is configured to accept both. A silent caller does not keep
// other callers out.
func TestPortsWithTLS(t *testing.T) {
	// This server gets no requests: only its certificate and its client are used.
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	for _, clear := range []bool{false, true} {
		inner := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		s := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path)
		}))
		done := make(chan struct{})
		conf := &tls.Config{Certificates: secure.TLS.Certificates}
		go func() { defer close(done); _ = s.Serve(TLSListener(LimitListener(inner), conf, clear)) }()
		t.Cleanup(func() { s.Close(); <-done })
		dialAdmin(t, inner.Addr().String(), "")
		for scheme, taken := range map[string]bool{"http": clear, "https": true} {
			for range 2 { // twice, the second time on the same connection
				r, err := secure.Client().Get(scheme + "://" + inner.Addr().String() + "/path")
				text := []byte{}
				if err == nil {
					text = must.Get(io.ReadAll(r.Body))(t)
					r.Body.Close()
				}
				expect.That(t, taken == (string(text) == "/path"), "%s, clear text %v: %v %s", scheme, clear, err, text)
			}
		}
		secure.Client().CloseIdleConnections()
	}
}

// Idle connections, and connections that never send a request, give way to new ones.
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

// A new connection does not cut off a request that is being answered, and the number of connections stays
// bounded.
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
	case <-time.After(50 * time.Millisecond): // the connection waits; a longer test would prove no more
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

// A connection that is closed twice gives its room back once. Accept returns an error after the listener is
// closed.
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

// callers is a listener whose connections come from a test.
type callers struct {
	net.Listener
	conns chan net.Conn
}

func (l callers) Accept() (net.Conn, error) { return <-l.conns, nil }

func (callers) Close() error { return nil }

type caller struct {
	net.Conn
	host   string
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.host), Port: 1} }

func (c *caller) Close() error { c.closed = true; return nil }

// To make room for a new connection, the listener closes the oldest idle connection of the address that has
// the most connections. If no connection is idle, Accept waits until a connection or an answer ends. It
// returns an error if the listener is closed while it waits.
func TestRoomForANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := callers{conns: make(chan net.Conn, 1)}
		ln := LimitListenerTo(from, 3)
		type accepted struct {
			c   *limitedConn
			err error
		}
		results := make(chan accepted, 1)
		call := func(host string) *caller {
			c := &caller{host: host}
			from.conns <- c
			go func() {
				got, err := ln.Accept()
				l, _ := got.(*limitedConn)
				results <- accepted{l, err}
			}()
			synctest.Wait()
			return c
		}
		one := call("10.0.0.2")
		first := (<-results).c
		two := call("10.0.0.1")
		<-results
		second := call("10.0.0.1")
		last := (<-results).c
		call("10.0.0.3")
		third := (<-results).c
		expect.That(t, two.closed && !one.closed && !second.closed, "not the oldest of many is closed")

		for _, c := range []*limitedConn{first, last, third} {
			c.working(1)
		}
		call("10.0.0.4")
		expect.Equal(t, len(results), 0, "more than may be")
		first.Close()
		fourth := (<-results).c
		fourth.working(1)
		call("10.0.0.5")
		expect.Equal(t, len(results), 0, "more than may be")
		last.working(-1)
		fifth := (<-results).c
		expect.That(t, second.closed, "an answered connection keeps its place")
		fifth.working(1)
		late := call("10.0.0.6")
		expect.Equal(t, len(results), 0, "more than may be")
		ln.Close()
		expect.Is(t, (<-results).err, net.ErrClosed)
		expect.That(t, late.closed, "a connection that came too late stays open")
	})
}

// On a port with TLS and clear text, a Read returns io.EOF if the connection ends before its first byte.
func TestConnectionWithoutAByte(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	_, err := (&eitherConn{Conn: near}).Read(make([]byte, 1))
	expect.Is(t, err, io.EOF)
}
