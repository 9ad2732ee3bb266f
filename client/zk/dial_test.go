package zk_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// closing is a connection that records whether it was closed.
type closing struct {
	net.Conn
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestConnectionOutOfOrderIsClosed drops one answer, so that the xids of the next answers do not match the
// requests. The server does not close the connection for that, so the client must.
func TestConnectionOutOfOrderIsClosed(t *testing.T) {
	leak.Check(t)
	p := must.Get(faultproxy.New(zlocktest.Config{}.Start(t).Addr))(t)
	t.Cleanup(p.Close)
	var last *closing // used only by the goroutine that dials
	c := dial(t, p.Addr(), zk.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		expect.That(t, last == nil || last.closed.Load(),
			"another connection is made while the broken one is open")
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		last = &closing{Conn: conn}
		return last, nil
	}})
	ctx := within(t)
	node(t, c, "/r", "x")
	rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetData, Nth: 1, Do: faultproxy.Drop})
	set := make(chan error, 1)
	go func() {
		_, err := c.Set(ctx, "/r", []byte("y"), -1)
		set <- err
	}()
	soon(t, "the drop", rule.Acted())
	must.Get(c.Get(ctx, "/r"))(t)
	is(t, soon(t, "the write", set), zk.ErrConnectionLost)
}

// heldUp is a context whose method Done sends a value on the channel `called`, and returns after the channel
// `until` is closed.
type heldUp struct {
	context.Context
	called chan<- struct{}
	until  <-chan struct{}
}

func (h heldUp) Done() <-chan struct{} {
	h.called <- struct{}{}
	<-h.until
	return h.Context.Done()
}

// TestClosedSessionIsNotAskedFor lets the server end the session and the connection before Close continues.
// The Conn must not connect again, because a server logs each request for a session that is over.
func TestClosedSessionIsNotAskedFor(t *testing.T) {
	s := zlocktest.Config{}.Start(t)
	var dials atomic.Int32
	again := make(chan struct{}, 1)
	c := dial(t, s.Addr, zk.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 2 {
			again <- struct{}{}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	ctx := within(t)
	called, until := make(chan struct{}, 1), make(chan struct{})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Close(heldUp{ctx, called, until}) }()
	<-called
	go func() { second <- c.Close(ctx) }() // returns when no goroutine of the Conn runs any longer
	select {
	case <-again:
	case <-second:
	}
	expect.Equal(t, dials.Load(), 1, "connections are made, the last for a session that was closed")
	close(until)
	must.OK(t, soon(t, "Close", first))
}

// answering() returns the address of a server that calls do() for each connection.
func answering(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				do(conn)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// The Conn reports for which reason a server is unusable, because each reason has its own remedy.
func TestTroubleNamesTheCause(t *testing.T) {
	leak.Check(t)
	hear := func(conn net.Conn) { conn.Read(make([]byte, 100)) }
	front, pool := secured(t, answering(t, hear))
	for name, x := range map[string]struct {
		addr string
		opt  zk.Options
		want string
	}{
		"refused":      {must.Refused(t), zk.Options{}, "connection refused"},
		"no such host": {"nowhere.invalid:2181", zk.Options{}, "nowhere.invalid"},
		"full":         {answering(t, func(net.Conn) {}), zk.Options{}, "accepts no more"},
		"not serving":  {answering(t, hear), zk.Options{}, "may not be serving yet"},
		"TLS expected": {front, zk.Options{}, "expects TLS"},
		"alert": {answering(t, func(c net.Conn) { hear(c); c.Write([]byte{21, 3, 3, 0, 2, 2, 10}) }),
			zk.Options{}, "expects TLS"},
		"not serving by TLS": {front, zk.Options{TLS: &tls.Config{RootCAs: pool}}, "may not be serving yet"},
		"no TLS":             {answering(t, hear), zk.Options{TLS: &tls.Config{}}, "does not speak TLS"},
		"web without": {
			answering(t, func(c net.Conn) { hear(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }),
			zk.Options{TLS: &tls.Config{}}, "does not speak TLS"},
		"reset without TLS": {answering(t, func(c net.Conn) { hear(c); c.(*net.TCPConn).SetLinger(0) }), zk.Options{
			TLS: &tls.Config{}}, "does not speak TLS"},
		"web": {
			answering(t, func(c net.Conn) { hear(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }),
			zk.Options{}, "answers in HTTP"},
		"silent": {answering(t, func(c net.Conn) { io.Copy(io.Discard, c) }),
			zk.Options{AttemptLimit: 50 * time.Millisecond}, zk.ErrSilent.Error()},
		"not to be trusted": {front, zk.Options{TLS: &tls.Config{}}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			for range 5 { // tried again: if the machine stalls, the Conn names another cause
				told := make(chan error, 1)
				x.opt.OnTrouble = func(_ string, err error) {
					select {
					case told <- err:
					default:
					}
				}
				c := must.Get(zk.Open(x.addr, x.opt))(t)
				err = soon(t, "the trouble", told)
				quit(c)
				expect.That(t, !strings.Contains(err.Error(), "->"), "%v: another text each time", err)
				if strings.Contains(err.Error(), x.want) {
					break
				}
			}
			expect.Has(t, err.Error(), x.want, "%v", err)
		})
	}
}

// If a server accepts the connection and then does not answer, Await and Trouble return an error that names
// that server. After its answer, Trouble returns nil.
func TestServerThatIsSilentIsNamed(t *testing.T) {
	leak.Check(t)
	asked, answer := make(chan bool, 1), make(chan bool)
	addr := answering(t, func(conn net.Conn) {
		if readRequest(conn) == nil {
			return
		}
		asked <- true
		<-answer
		conn.Write(granted)
		io.Copy(io.Discard, conn)
	})
	c := must.Get(zk.Open(must.Refused(t)+","+addr, zk.Options{AttemptLimit: patience}))(t)
	soon(t, "a request for a session", asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Await(ctx)
	expect.Is(t, err, zk.ErrSilent, "while it is asked")
	expect.Is(t, err, context.Canceled, "while it is asked")
	expect.Has(t, err.Error(), addr+": "+zk.ErrSilent.Error())
	close(answer)
	must.OK(t, c.Await(within(t)))
	expect.OK(t, c.Trouble(), "trouble, while connected")
	quit(c)
}

// secured() returns the address of a TLS front for addr, and the pool that contains its certificate.
func secured(t *testing.T, addr string) (string, *x509.CertPool) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	pool := x509.NewCertPool()
	pool.AddCert(must.Get(x509.ParseCertificate(der))(t))
	ln := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{
		{Certificate: [][]byte{der}, PrivateKey: key}}}))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { io.Copy(out, in); out.Close() })
			wg.Go(func() { io.Copy(in, out); in.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return net.JoinHostPort("localhost", port), pool
}

func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		front, pool := secured(t, addr)
		cfg := &tls.Config{RootCAs: pool}
		c, ctx := dial(t, front, zk.Options{TLS: cfg}), within(t)
		must.Equal(t, cfg.ServerName, "", "name in the program's settings")
		node(t, c, "/tls", "x")
		c.Reconnect()
		must.Get(c.Get(ctx, "/tls"))(t)
		must.OK(t, c.Close(ctx))

		// The Conn reports a certificate whose issuer it does not know.
		told := make(chan error, 100)
		bad := must.Get(zk.Open(front, zk.Options{
			TLS: &tls.Config{}, OnTrouble: func(_ string, err error) {
				select {
				case told <- err:
				default:
				}
			}}))(t)
		must.Fails(t, soon(t, "the trouble", told), "no error")
		must.OK(t, bad.Close(ctx))
	})
}
