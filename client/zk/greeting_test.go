package zk_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Bytes that are not the answer to a handshake neither grant nor end a session.
func TestAnswersThatGrantNoSession(t *testing.T) {
	hello := func(timeout, password int32) []byte {
		b := jute.AppendLong(jute.AppendInt(jute.AppendInt(jute.AppendInt(nil, 37), 0), timeout), 7)
		return append(jute.AppendInt(b, password), make([]byte, 17)...)
	}
	for name, x := range map[string]struct {
		answer []byte
		want   string
	}{
		"less than no time":          {hello(-1, 16), "does not come from a ZooKeeper server"},
		"password beyond the answer": {hello(10_000, 18), "does not come from a ZooKeeper server"},
		"cut":                        {hello(10_000, 16)[:30], "closed the connection instead of greeting"},
		"cut in its length":          {hello(10_000, 16)[:3], "closed the connection instead of greeting"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan error, 100)
				c := must.Get(zk.Open("a", zk.Options{
					OnTrouble: func(_ string, err error) { told <- err },
					Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
						if before > 0 {
							return piped(mute), nil
						}
						return piped(func(conn net.Conn) {
							readRequest(conn)
							conn.Write(x.answer)
						}), nil
					})}))(t)
				expect.Has(t, (<-told).Error(), x.want)
				expect.OK(t, c.Err())
				quit(c)
			})
		})
	}
}

// If a server closes connections, the Conn opens one more to learn the reason. It does this again only after
// the server was usable. If the server says nothing on that connection, the Conn still finds a reason within
// a moment.
func TestWhyAServerClosesConnections(t *testing.T) {
	for name, x := range map[string]struct {
		probe func(conn net.Conn)
		want  []string
		dials int
	}{
		"silent": {mute, []string{"may not be serving yet", "may not be serving yet", "may not be serving yet"}, 4},
		"full":   {func(net.Conn) {}, []string{"accepts no more", "maxClientCnxns", "maxClientCnxns"}, 5},
		"TLS": {func(conn net.Conn) {
			conn.Read(make([]byte, 64<<10))
			conn.Write([]byte{21, 3, 3, 0, 2, 2, 10})
		}, []string{"expects TLS", "expects TLS", "expects TLS"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				dials := 0
				told, goOn := make(chan error), make(chan struct{})
				began := time.Now()
				c := must.Get(zk.Open("a", zk.Options{AttemptLimit: time.Hour, Timeout: 4 * time.Hour,
					OnTrouble: func(_ string, err error) {
						told <- err
						<-goOn
					},
					Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
						mu.Lock()
						defer mu.Unlock()
						dials++
						if dials == 1 || dials == 3 || name != "full" && dials > 2 || dials == 5 {
							return piped(curt), nil
						}
						return piped(x.probe), nil
					})}))(t)
				for i, want := range x.want {
					expect.Has(t, (<-told).Error(), want, "trouble %d", i)
					if i+1 < len(x.want) {
						goOn <- struct{}{}
					}
				}
				expect.That(t, time.Since(began) < time.Minute, "found out after %v", time.Since(began))
				mu.Lock()
				expect.Equal(t, dials, x.dials, "connections")
				mu.Unlock()
				close(goOn)
				go func() {
					for range told {
					}
				}()
				quit(c)
				close(told)
			})
		})
	}
}

// Without an option the Conn asks for a timeout of 20 seconds, and refuses requests of 1 MiB and more.
func TestDefaultsOfOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan int32, 1)
		c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return piped(func(conn net.Conn) {
					d := jute.NewDecoder(readRequest(conn))
					d.Int()
					d.Long()
					asked <- d.Int()
					conn.Write(granted)
					for readRequest(conn) != nil {
						conn.Write(reply(1, jute.NodeExists, 0, nil))
					}
				}), nil
			}}))(t)
		expect.Equal(t, <-asked, 20_000)
		// The request has 51 bytes beside the data.
		fits := make([]byte, 1<<20-1-51)
		_, err := c.Create(t.Context(), zk.Create{Path: "/", Data: fits})
		expect.Is(t, err, zk.ErrNodeExists)
		quit(c)
	})
}

// A request may be exactly as long as MaxRequest allows.
func TestLongestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const head, body = 8, 4 + len("/path")
		for room, want := range map[int]error{head + body - 1: zk.ErrTooLarge, head + body: nil,
			head + body + 1: nil} {
			c := must.Get(zk.Dial(t.Context(), "a", zk.Options{MaxRequest: room,
				Dial: func(context.Context, string, string) (net.Conn, error) { return piped(obliging), nil }}))(t)
			err := c.Sync(t.Context(), "/path")
			expect.Is(t, err, want, "room for %d", room)
			expect.Equal(t, err == nil, want == nil, "room for %d: whether it succeeds", room)
			must.OK(t, c.Close(t.Context()))
		}
	})
}
