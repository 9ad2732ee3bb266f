package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// counted is a listener that counts its connections.
type counted struct {
	net.Listener
	mu                 sync.Mutex
	accepted, now, max int
}

type countedConn struct {
	net.Conn
	l    *counted
	once sync.Once
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted, l.now = l.accepted+1, l.now+1
	l.max = max(l.max, l.now)
	return &countedConn{Conn: c, l: l}, nil
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.now--
	})
	return c.Conn.Close()
}

// The admin port and the metrics port have a limited number of connections. At the limit, an old connection
// is closed to make room for a new one.
func TestConnectionsOfTheAdminPortsAreBounded(t *testing.T) {
	t.Parallel()
	var opened []*counted
	_, _ = start(t, Options{AdminAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		Listen: func(addr string) (net.Listener, error) {
			ln, err := net.Listen("tcp", addr)
			opened = append(opened, &counted{Listener: ln})
			return opened[len(opened)-1], err
		}})
	must.Equal(t, len(opened), 3, "ports")
	for _, l := range opened[1:] {
		for range 300 {
			c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
			defer c.Close()
		}
		most := 0
		await(t, "all are accepted", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			most = l.max
			return l.accepted == 300
		})
		expect.That(t, most <= 257, "%d connections at a time", most)
	}
}

// A client that speaks HTTP to the client port is told where the admin pages are.
func TestClientPortNamesTheAdminPort(t *testing.T) {
	t.Parallel()
	pair, _, _ := until(t, time.Now().Add(time.Hour))
	for scheme, o := range map[string]Options{
		"http":  {AdminAddr: "127.0.0.1:0"},
		"https": {AdminAddr: "127.0.0.1:0", AdminTLS: &tls.Config{Certificates: []tls.Certificate{pair}}},
		"":      {AdminTLS: &tls.Config{Certificates: []tls.Certificate{pair}}},
	} {
		i, _ := start(t, o)
		c := must.Get(net.Dial("tcp", i.ClientAddr()))(t)
		defer c.Close()
		must.Get(io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"))(t)
		text := string(must.Get(io.ReadAll(c))(t))
		if scheme == "" {
			expect.That(t, strings.HasSuffix(text, "protocol.\n"), "%q", text)
			continue
		}
		expect.That(t, strings.HasSuffix(text, " at "+scheme+"://"+i.AdminAddr()+"/\n"), "%q", text)
	}
}

// The admin port has all its pages.
func TestPagesOfTheAdminPort(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", SuperDigest: superDigest})
	for path, want := range map[string]int{"/commands/snapshot": 401, "/commands/snap": 401,
		"/commands/restore": 405, "/commands/rest": 405, "/debug/trace": 401, "/locks": 200, "/none": 404} {
		code, text := get(t, "http://"+i.AdminAddr()+path)
		expect.Equal(t, code, want, "%s: %s", path, text)
	}
}

// brokenListener is a listener whose socket is broken.
type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("the socket is broken") }

// Failed reports a port that has failed, but not the end of a server that was closed.
func TestServerTellsOfAPortThatFails(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"admin port failed": {AdminAddr: "127.0.0.1:0"},
		"metrics port failed": {MetricsAddr: "127.0.0.1:0"}} {
		var log must.Text
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Listen = func(addr string) (net.Listener, error) {
			ln, err := net.Listen("tcp", addr)
			return brokenListener{ln}, err
		}
		i := must.Get(Start(t.Context(), o))(t)
		<-i.Failed()
		must.OK(t, i.Close(context.Background()))
		expect.Has(t, log.String(), `level=ERROR msg="`+name+`" err="the socket is broken"`)
	}
	var log must.Text
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must.OK(t, i.Close(context.Background()))
	select {
	case <-i.Failed():
		t.Errorf("a server that was closed has failed: %s", log.String())
	default:
	}
}

// A server that does not start leaves no port open.
func TestServerThatDoesNotStartClosesItsPorts(t *testing.T) {
	t.Parallel()
	var opened []net.Listener
	o := Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		LogStore: "paper", Listen: func(addr string) (net.Listener, error) {
			ln, err := net.Listen("tcp", addr)
			opened = append(opened, ln)
			return ln, err
		}}
	must.Fails(t, expect.Err(Start(t.Context(), o)), "a server on paper")
	o.SecureAddr = "127.0.0.1:0"
	must.Fails(t, expect.Err(Start(t.Context(), o)), "a TLS port without a certificate")
	must.Equal(t, len(opened), 7)
	for _, ln := range opened {
		_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(time.Second)) // so that Accept of an open port ends
		_, err := ln.Accept()
		expect.Is(t, err, net.ErrClosed)
	}
}

// bare returns a server that has not joined a cluster, and whose ports are not open.
func bare(t *testing.T, o Options) *Instance {
	t.Helper()
	i := &Instance{o: o.withDefaults(), failed: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(t.Context())
	var err error
	i.Clients, err = clients.New(i.clientOptions())
	must.OK(t, err)
	i.c = i.Clients.Options()
	return i
}

// While a server waits for the other servers, it reports what it waits for, and whether clients may read.
func TestServerThatWaitsForOthers(t *testing.T) {
	t.Parallel()
	two, three := map[uint32]string{1: "h1:1", 2: "h2:1"}, map[uint32]string{1: "h1:1", 2: "h2:1", 3: "h3:1"}
	for _, c := range []struct {
		o     Options
		reads bool
	}{
		{Options{ReadOnlyMode: true, Peers: two}, true},
		{Options{ReadOnlyMode: true, Peers: three}, true},
		{Options{ReadOnlyMode: true, Peers: map[uint32]string{1: "h1:1"}}, false},
		{Options{Peers: three}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := bare(t, c.o)
			end := i.readMeanwhile()
			s := i.Status(0)
			expect.That(t, !s.Serving, "%+v: %v %q", c.o, s.Mode, s.Reason)
			expect.That(t, s.Mode != report.ReadOnly, "%+v: %v %q", c.o, s.Mode, s.Reason)
			expect.Equal(t, s.Reason, "waiting for the other servers of the cluster", "reason")
			what := "waiting for server 2"
			i.raftOptions().Waiting(what)
			time.Sleep(unformedGrace + time.Millisecond)
			s = i.Status(0)
			expect.That(t, !s.Serving, "%+v: %v %q", c.o, s.Mode, s.Reason)
			expect.Equal(t, s.Mode == report.ReadOnly, c.reads, "%+v: whether it is read-only", c.o)
			expect.Equal(t, s.Reason, what, "reason")
			end()
			expect.That(t, i.Status(0).Mode != report.ReadOnly, "%+v: still reads", c.o)
			must.OK(t, i.Close(context.Background()))
		})
	}
}

// The audit log has what clients and operators do and how sessions end, and the server's log has the requests
// that are slow.
func TestLogsOfRequests(t *testing.T) {
	t.Parallel()
	for _, slow := range []time.Duration{0, time.Nanosecond} {
		name := filepath.Join(t.TempDir(), "audit.log")
		a := must.Get(audit.Open(audit.Options{Name: name}))(t)
		t.Cleanup(a.Close)
		var log must.Text
		i, c := start(t, Options{AdminAddr: "127.0.0.1:0", Audit: a, SlowRequest: slow,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		create(t, c, "/audited", 1)
		must.OK(t, c.CloseSession())
		resp := must.Get(http.Post("http://"+i.AdminAddr()+"/commands/restore", "", nil))(t)
		resp.Body.Close()
		for _, part := range []string{"operation=create\tznode=/audited",
			"operation=ephemeralZNodeDeletionOnSessionCloseOrExpire", "POST /commands/restore"} {
			await(t, part+" in the audit log", func() bool {
				return strings.Contains(string(must.Get(os.ReadFile(name))(t)), part)
			})
		}
		s := i.Status(report.NeedMetrics)
		lines := -1.0
		for _, m := range s.Extra {
			if m.Name == "audit_lines_total" {
				lines = m.Value
			}
		}
		expect.That(t, lines >= 3, "%v lines, faults %q", lines, s.Faults)
		expect.Equal(t, len(s.Faults), 0, "number of faults %v", s.Faults)
		expect.Equal(t, strings.Contains(log.String(), "slow request"), slow > 0, "slow requests in %s", log.String())
	}
	var log must.Text
	_, c := start(t, Options{SlowRequest: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	create(t, c, "/slow", 0)
	log.Await(t, "slow request")
}

// Close returns an error if an operator's request is still under way when the context of Close ends.
func TestCloseTellsWhatItDidNotWaitFor(t *testing.T) {
	t.Parallel()
	i := must.Get(Start(t.Context(), Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		SuperDigest: superDigest}))(t)
	c := must.Get(net.Dial("tcp", i.AdminAddr()))(t)
	defer c.Close()
	must.Get(io.WriteString(c, "POST /commands/restore HTTP/1.1\r\nHost: localhost\r\nAuthorization: digest super:test\r\n"+
		"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"))(t)
	began := make([]byte, 12)
	must.Get(io.ReadFull(c, began))(t)
	must.Equal(t, string(began), "HTTP/1.1 100")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, i.Close(ctx), context.Canceled)
}
