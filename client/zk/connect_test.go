package zk_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var errNo = errors.New("refused")

// piped() returns one end of a connection, and passes the other end to do().
func piped(do func(net.Conn)) *closing {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		do(far)
	}()
	return &closing{Conn: near}
}

// obliging() is a server that grants a session, and answers every request with OK.
func obliging(conn net.Conn) {
	serve(conn, func(xid int32, _ jute.OpCode) []byte { return reply(xid, jute.OK, 0, nil) })
}

// mute() is a server that reads, but never answers.
func mute(conn net.Conn) { io.Copy(io.Discard, conn) }

// curt() is a server that closes the connection at the first request.
func curt(conn net.Conn) { readRequest(conn) }

// dialled() returns a function for Options.Dial. That function numbers the servers from 0 in the order of
// their first connection. It calls do() with the number of the server, and the number of earlier connections
// to that server.
func dialled(do func(ctx context.Context, server, before int) (net.Conn, error)) func(context.Context, string,
	string) (net.Conn, error) {
	var mu sync.Mutex
	numbers, tries := map[string]int{}, map[string]int{}
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		mu.Lock()
		server, known := numbers[addr]
		if !known {
			server = len(numbers)
			numbers[addr] = server
		}
		before := tries[addr]
		tries[addr]++
		mu.Unlock()
		return do(ctx, server, before)
	}
}

// quit() closes a Conn without a wait for the server.
func quit(c *zk.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c.Close(ended)
}

// The Conn connects to the first server at once. If that server is unusable or takes long, the Conn tries the
// next one, too. When one server accepts the session, the other attempts end.
func TestNextServerIsTriedBeside(t *testing.T) {
	for name, x := range map[string]struct {
		first func(ctx context.Context) (net.Conn, error)
		took  time.Duration
	}{
		"of use":       {func(context.Context) (net.Conn, error) { return piped(obliging), nil }, 0},
		"refused":      {func(context.Context) (net.Conn, error) { return nil, errNo }, 0},
		"not greeting": {func(context.Context) (net.Conn, error) { return piped(curt), nil }, 0},
		"silent": {func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c := must.Get(zk.Dial(t.Context(), "a,b", zk.Options{AttemptLimit: time.Hour, Timeout: 4 * time.Hour,
					Dial: dialled(func(ctx context.Context, server, before int) (net.Conn, error) {
						if server == 0 && before == 0 {
							return x.first(ctx)
						}
						if server == 0 {
							return nil, errNo
						}
						return piped(obliging), nil
					})}))(t)
				must.Equal(t, time.Since(began), x.took, "connected after")
				must.OK(t, c.Trouble(), "trouble, while connected")
				quit(c)
			})
		})
	}
}

// The Conn closes each connection that it cannot use: a connection that came too late, one without a
// greeting, one without the required TLS, and one that was opened only to learn why the server does not
// greet.
func TestConnectionsOfNoUseAreClosed(t *testing.T) {
	for name, x := range map[string]struct {
		tls  *tls.Config
		dial func(ctx context.Context) *closing
		want string
	}{
		"late": {nil, func(ctx context.Context) *closing {
			<-ctx.Done()
			return piped(mute)
		}, "connected: [true]"},
		"not greeting": {nil, func(context.Context) *closing { return piped(curt) }, "trouble: [true true]"},
		"no TLS":       {&tls.Config{}, func(context.Context) *closing { return piped(curt) }, "trouble: [true]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var conns []*closing
				told := make(chan string, 100)
				tell := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					var closed []bool
					for _, conn := range conns {
						closed = append(closed, conn.closed.Load())
					}
					told <- fmt.Sprintf("%s: %v", what, closed)
				}
				servers := "a"
				if name == "late" {
					servers = "a,b"
				}
				c := must.Get(zk.Open(servers, zk.Options{
					TLS:       x.tls,
					OnTrouble: func(string, error) { tell("trouble") },
					OnState:   func(s zk.State) { tell(s.String()) },
					Dial: dialled(func(ctx context.Context, server, _ int) (net.Conn, error) {
						if server == 1 {
							return piped(obliging), nil
						}
						conn := x.dial(ctx)
						mu.Lock()
						conns = append(conns, conn)
						mu.Unlock()
						return conn, nil
					})}))(t)
				expect.Equal(t, <-told, x.want, "connections that are closed")
				quit(c)
			})
		})
	}
}

// Once the client is connected, it reports no trouble. It does not even report an attempt that began before
// and fails later.
func TestTroubleEndsWithAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		tell := func(text string) {
			mu.Lock()
			told = append(told, text)
			mu.Unlock()
		}
		c := must.Get(zk.Dial(t.Context(), "a,b", zk.Options{
			OnTrouble: func(string, error) { tell("trouble") },
			OnState:   func(s zk.State) { tell(s.String()) },
			Dial: dialled(func(ctx context.Context, server, before int) (net.Conn, error) {
				switch {
				case server == 1:
					return piped(obliging), nil
				case before == 0:
					return piped(curt), nil
				}
				<-ctx.Done()
				time.Sleep(time.Second)
				return nil, errNo
			})}))(t)
		time.Sleep(time.Minute)
		must.OK(t, c.Trouble())
		quit(c)
		synctest.Wait()
		expect.List(t, told, []string{"trouble", "connected", "closed"})
	})
}

// Reconnect connects to the next server.
func TestReconnectGoesToTheNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var servers []int
		var states []string
		c := must.Get(zk.Dial(t.Context(), "a,b,c", zk.Options{
			OnState: func(s zk.State) {
				mu.Lock()
				states = append(states, s.String())
				mu.Unlock()
			},
			Dial: dialled(func(_ context.Context, server, _ int) (net.Conn, error) {
				mu.Lock()
				servers = append(servers, server)
				mu.Unlock()
				return piped(obliging), nil
			})}))(t)
		for range 4 {
			c.Reconnect()
			synctest.Wait()
			must.OK(t, c.Await(t.Context()))
		}
		quit(c)
		expect.List(t, servers, []int{0, 1, 2, 0, 1})
		want := strings.Repeat("connected disconnected ", 4) + "connected closed"
		synctest.Wait()
		expect.Equal(t, strings.Join(states, " "), want, "states")
	})
}

// The Conn tries all servers, in random order.
func TestOrderOfServersIsRandom(t *testing.T) {
	var list []string
	for i := range 30 {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", 1000+i))
	}
	c := must.Get(zk.Open(strings.Join(list, ","), zk.Options{
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNo }}))(t)
	got := c.Servers()
	expect.That(t, !slices.Equal(got, list), "%v: in the order of the list", got)
	slices.Sort(got)
	expect.List(t, got, list)
	quit(c)
}

// When a usable connection is lost, the Conn connects again at once. Unusable servers it tries about once a
// second.
func TestServersOfNoUseAreAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dials, serving := 0, false
		var latest time.Time
		c := must.Get(zk.Open("a", zk.Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dials++
			latest = time.Now()
			if dials == 200 {
				panic("asked in a tight loop")
			}
			if serving {
				return piped(obliging), nil
			}
			return nil, errNo
		}}))(t)
		time.Sleep(time.Minute)
		mu.Lock()
		must.That(t, dials > 48 && dials < 90, "%d tries in a minute", dials)
		serving = true
		mu.Unlock()
		must.OK(t, c.Await(t.Context()))
		must.OK(t, c.Sync(t.Context(), "/"))
		time.Sleep(time.Minute)
		c.Reconnect()
		synctest.Wait()
		must.That(t, c.Session().Connected, "not connected at once")
		mu.Lock()
		must.Equal(t, time.Since(latest), 0, "connected before")
		mu.Unlock()
		quit(c)
	})
}
