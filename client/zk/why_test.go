package zk_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// answering returns the address of a server that does one thing with connections.
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

// A server that cannot be used is of one of a few kinds, and each asks for another
// remedy.
func TestTroubleNamesTheCause(t *testing.T) {
	goleakAtEnd(t)
	hear := func(conn net.Conn) { conn.Read(make([]byte, 100)) }
	front, _ := secured(t, answering(t, hear))
	gone := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone.Close()
	for name, x := range map[string]struct {
		addr string
		opt  zk.Options
		want string
	}{
		"refused":      {gone.Addr().String(), zk.Options{}, "connection refused"},
		"no such host": {"nowhere.invalid:2181", zk.Options{}, "nowhere.invalid"},
		"full":         {answering(t, func(net.Conn) {}), zk.Options{}, "takes no more of them"},
		"not serving":  {answering(t, hear), zk.Options{}, "may not be serving yet"},
		"TLS expected": {front, zk.Options{}, "expects TLS"},
		"alert": {answering(t, func(c net.Conn) { hear(c); c.Write([]byte{21, 3, 3, 0, 2, 2, 10}) }),
			zk.Options{}, "expects TLS"},
		"no TLS": {answering(t, hear), zk.Options{TLS: &tls.Config{}}, "does not speak TLS"},
		"web without": {
			answering(t, func(c net.Conn) { hear(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }),
			zk.Options{TLS: &tls.Config{}}, "does not speak TLS"},
		"reset without TLS": {answering(t, func(c net.Conn) { hear(c); c.(*net.TCPConn).SetLinger(0) }), zk.Options{
			TLS: &tls.Config{}}, "does not speak TLS"},
		"web": {
			answering(t, func(c net.Conn) { hear(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }),
			zk.Options{}, "answers in HTTP"},
		"not to be trusted": {front, zk.Options{TLS: &tls.Config{}}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 1)
			x.opt.OnTrouble = func(_ string, err error) {
				select {
				case told <- err:
				default:
				}
			}
			c := must.Get(zk.Open(x.addr, x.opt))(t)
			err := soon(t, "the trouble", told)
			expect.Has(t, err.Error(), x.want, "%v", err)
			expect.That(t, !strings.Contains(err.Error(), "->"), "%v: another text each time", err)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c.Close(ctx)
		})
	}
}
