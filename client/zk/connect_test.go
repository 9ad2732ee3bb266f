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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var errNo = errors.New("refused")

// piped returns a connection whose other end does something until it has no more to do.
func piped(do func(net.Conn)) *closing {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		do(far)
	}()
	return &closing{Conn: near}
}

// obliging grants a session, and says that every request is done.
func obliging(conn net.Conn) {
	serve(conn, func(xid int32, _ jute.OpCode) []byte { return reply(xid, jute.OK, 0, nil) })
}

// mute reads, and says nothing.
func mute(conn net.Conn) { io.Copy(io.Discard, conn) }

// curt closes the connection at the first request.
func curt(conn net.Conn) { readRequest(conn) }

// dialled is a function for Options.Dial: servers are numbered from 0 in the order of their first connection.
// It calls do with the server's number, and how many connections to that server were tried before.
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

// quit closes a Conn without a wait for the server.
func quit(c *zk.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c.Close(ended)
}

// The first server is tried at once, the next one when the first is of no use, or after a moment. A server
// that takes the session ends the tries of the others.
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

// A connection of no use is closed: one that is there too late, one on which the server does not greet, one
// without the TLS that is wanted, and one that only asks why the server does not greet.
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

// Trouble of before is over with a connection, also if its cause is found late.
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

// After one server the Conn turns to the next.
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

// Servers are tried in random order, each of them.
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

// Servers that are of no use are asked about once a second. A connection that was of use is replaced at once.
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

// Close does not wait for a server that says nothing, wherever the Conn is.
func TestCloseDoesNotWaitForASilentServer(t *testing.T) {
	for name, dial := range map[string]func(ctx context.Context, before int) (net.Conn, error){
		"connecting": func(ctx context.Context, _ int) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"greeting": func(context.Context, int) (net.Conn, error) { return piped(mute), nil },
		"presenting": func(context.Context, int) (net.Conn, error) {
			return piped(func(conn net.Conn) {
				readRequest(conn)
				conn.Write(granted)
				mute(conn)
			}), nil
		},
		"asking why": func(_ context.Context, before int) (net.Conn, error) {
			if before == 0 {
				return piped(curt), nil
			}
			return piped(mute), nil
		},
		"connected": func(context.Context, int) (net.Conn, error) {
			return piped(func(conn net.Conn) {
				for _, b := range [][]byte{granted, reply(jute.XidAuth, jute.OK, 0, nil)} {
					readRequest(conn)
					conn.Write(b)
				}
				mute(conn)
			}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := must.Get(zk.Open("a", zk.Options{AttemptLimit: time.Hour, Timeout: 4 * time.Hour,
					Auth: []zk.Auth{{Scheme: "digest", Secret: []byte("a:1")}},
					Dial: dialled(func(ctx context.Context, _, before int) (net.Conn, error) { return dial(ctx, before) }),
				}))(t)
				synctest.Wait()
				must.Equal(t, c.Session().Connected, name == "connected")
				p := c.Pipe()
				read := p.Sync("/")
				p.Send()
				must.Equal(t, c.Pending(), 1, "requests")
				began := time.Now()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				err := c.Close(ended)
				expect.That(t, (err != nil) == (name == "connected"), "%v", err)
				expect.Equal(t, time.Since(began), 0, "waited")
				expect.Equal(t, c.Pending(), 0, "requests")
				_, err = read.Wait(t.Context())
				expect.Is(t, err, zk.ErrClosed)
			})
		})
	}
}

// faulty is a connection of which one step fails. The steps are counted by name.
type faulty struct {
	net.Conn
	step  string
	steps map[string]int
}

func (f *faulty) does(name string) error {
	f.steps[name]++
	if fmt.Sprintf("%s %d", name, f.steps[name]) == f.step {
		return errNo
	}
	return nil
}

func (f *faulty) SetDeadline(at time.Time) error {
	if err := f.does("SetDeadline"); err != nil {
		return err
	}
	return f.Conn.SetDeadline(at)
}

func (f *faulty) SetReadDeadline(at time.Time) error {
	if err := f.does("SetReadDeadline"); err != nil {
		return err
	}
	return f.Conn.SetReadDeadline(at)
}

func (f *faulty) Write(b []byte) (int, error) {
	if err := f.does("Write"); err != nil {
		return 0, err
	}
	return f.Conn.Write(b)
}

// A connection that fails at any step is replaced, and the cause is told if it carried no session yet.
func TestConnectionThatFailsIsReplaced(t *testing.T) {
	for step, want := range map[string]string{
		"SetDeadline 1":     "trouble: refused connected closed", // of the handshake
		"Write 1":           "trouble: refused connected closed", // the handshake
		"Write 2":           "trouble: refused connected closed", // the identity
		"SetDeadline 2":     "trouble: refused connected closed", // no more
		"SetReadDeadline 1": "connected disconnected connected closed",
	} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan string, 100)
				c := must.Get(zk.Open("a", zk.Options{
					Auth:      []zk.Auth{{Scheme: "digest", Secret: []byte("a:1")}},
					OnTrouble: func(_ string, err error) { told <- "trouble: " + err.Error() },
					OnState:   func(s zk.State) { told <- s.String() },
					Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
						if before == 0 {
							return &faulty{piped(obliging), step, map[string]int{}}, nil
						}
						return piped(obliging), nil
					})}))(t)
				time.Sleep(time.Second)
				must.OK(t, c.Sync(t.Context(), "/"))
				must.OK(t, c.Close(t.Context()))
				close(told)
				var all []string
				for s := range told {
					all = append(all, s)
				}
				expect.Equal(t, strings.Join(all, " "), want)
			})
		})
	}
}

// What is not the answer to a handshake grants no session, and ends none.
func TestAnswersThatGrantNoSession(t *testing.T) {
	hello := func(timeout, password int32) []byte {
		b := jute.AppendLong(jute.AppendInt(jute.AppendInt(jute.AppendInt(nil, 37), 0), timeout), 7)
		return append(jute.AppendInt(b, password), make([]byte, 17)...)
	}
	for name, x := range map[string]struct {
		answer []byte
		want   string
	}{
		"less than no time":          {hello(-1, 16), "not that of a ZooKeeper server"},
		"password beyond the answer": {hello(10_000, 18), "not that of a ZooKeeper server"},
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

// Why a server closes connections is found out on another one, and not again before it is of use. That takes
// a moment, even if the server says nothing.
func TestWhyAServerClosesConnections(t *testing.T) {
	for name, x := range map[string]struct {
		probe func(conn net.Conn)
		want  []string
		dials int
	}{
		"silent": {mute, []string{"may not be serving yet", "may not be serving yet", "may not be serving yet"}, 4},
		"full":   {func(net.Conn) {}, []string{"takes no more of them", "maxClientCnxns", "maxClientCnxns"}, 5},
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

// A session that the server does not know is over when a server would begin another one, and it was without a
// connection for its timeout. The question leaves neither session nor connection behind.
func TestServerIsAskedForANewSession(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var conns []*closing
			var ended time.Time
			asked := make(chan struct{}, 100)
			began := time.Now()
			c := must.Get(zk.Dial(t.Context(), "a", zk.Options{AttemptLimit: time.Hour, Timeout: 4 * time.Hour,
				Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
					if before == 0 {
						return piped(obliging), nil
					}
					conn := piped(func(conn net.Conn) {
						d := jute.NewDecoder(readRequest(conn))
						d.Int()
						d.Long()
						d.Int()
						if d.Err() != nil || d.Long() != 0 {
							return // it is the question why, or refused
						}
						asked <- struct{}{}
						if silent {
							mute(conn)
							return
						}
						conn.Write(granted)
						d = jute.NewDecoder(readRequest(conn))
						d.Int()
						if jute.OpCode(d.Int()) == jute.OpCloseSession {
							time.Sleep(time.Second)
							mu.Lock()
							ended = time.Now()
							mu.Unlock()
							conn.Write(reply(1, jute.OK, 0, nil))
						}
					})
					mu.Lock()
					conns = append(conns, conn)
					mu.Unlock()
					return conn, nil
				})}))(t)
			must.OK(t, c.Sync(t.Context(), "/"))
			c.Reconnect()
			<-asked
			must.That(t, time.Since(began) > 10*time.Second, "asked after %v", time.Since(began))
			if silent {
				began = time.Now()
				synctest.Wait()
				quit(c)
				expect.Is(t, c.Err(), zk.ErrClosed)
				expect.Equal(t, time.Since(began), 0, "Close waited")
			} else {
				<-c.Over()
				expect.Is(t, c.Err(), zk.ErrSessionExpired)
				mu.Lock()
				expect.Equal(t, time.Since(ended), 0, "the new session ended before")
				mu.Unlock()
				must.OK(t, c.Close(t.Context()))
			}
			for i, conn := range conns {
				expect.That(t, conn.closed.Load(), "connection %d is open", i)
			}
		})
	}
}

// A session that is taken over from another Conn is not given up before this one had it.
func TestResumedSessionIsAskedForUntilItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serving atomic.Bool
		c := must.Get(zk.Open("a", zk.Options{Resume: zk.Session{ID: 7, Password: make([]byte, 16)},
			Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
				return piped(func(conn net.Conn) {
					d := jute.NewDecoder(readRequest(conn))
					d.Int()
					d.Long()
					d.Int()
					if sid := d.Long(); d.Err() != nil || sid == 7 && !serving.Load() {
						return
					}
					conn.Write(granted)
					mute(conn)
				}), nil
			})}))(t)
		time.Sleep(time.Minute)
		must.OK(t, c.Err())
		serving.Store(true)
		must.OK(t, c.Await(t.Context()))
		quit(c)
	})
}

// A server that hears nothing for the timeout ends the session. Pings follow requests at any time.
func TestPingsFollowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
			Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
				dials.Add(1)
				return piped(func(conn net.Conn) {
					serve(conn, func(xid int32, _ jute.OpCode) []byte {
						conn.SetReadDeadline(time.Now().Add(10 * time.Second))
						return reply(xid, jute.OK, 0, nil)
					})
				}), nil
			})}))(t)
		for _, d := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, time.Hour} {
			must.OK(t, c.Sync(t.Context(), "/"))
			time.Sleep(d)
		}
		must.Equal(t, dials.Load(), 1, "connections")
		must.OK(t, c.Close(t.Context()))
	})
}

// Without an option the Conn asks for a timeout of 20 seconds, and bounds a request by a mebibyte.
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
		// The path, the list of permissions and so on are 51 bytes.
		fits := make([]byte, 1<<20-1-51)
		_, err := c.Create(t.Context(), zk.Create{Path: "/", Data: fits})
		expect.Is(t, err, zk.ErrNodeExists)
		quit(c)
	})
}

// A request may be just as long as the option says.
func TestLongestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const head, body = 8, 4 + len("/path")
		for room, want := range map[int]error{head + body - 1: zk.ErrTooLarge, head + body: nil,
			head + body + 1: nil} {
			c := must.Get(zk.Dial(t.Context(), "a", zk.Options{MaxRequest: room,
				Dial: func(context.Context, string, string) (net.Conn, error) { return piped(obliging), nil }}))(t)
			err := c.Sync(t.Context(), "/path")
			expect.That(t, errors.Is(err, want) && (err == nil) == (want == nil), "room for %d: %v", room, err)
			must.OK(t, c.Close(t.Context()))
		}
	})
}

// What only reads, or does no harm twice, is asked again on the next connection. What changes something is
// not.
func TestWhatIsAskedAgain(t *testing.T) {
	set := zk.SetData{Path: "/r", Version: -1}
	for name, x := range map[string]struct {
		again bool
		call  func(ctx context.Context, c *zk.Conn) error
	}{
		"Create": {false, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.Create(ctx, zk.Create{Path: "/r"}))
		}},
		"Set": {false, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.Set(ctx, "/r", nil, -1))
		}},
		"Delete": {false, func(ctx context.Context, c *zk.Conn) error { return c.Delete(ctx, "/r", -1) }},
		"SetACL": {false, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.SetACL(ctx, "/r", zk.WorldACL(1), -1))
		}},
		"Multi":   {false, func(ctx context.Context, c *zk.Conn) error { return expect.Err(c.Multi(ctx, set)) }},
		"Confirm": {false, func(ctx context.Context, c *zk.Conn) error { return c.Confirm(ctx) }},
		"Get":     {true, func(ctx context.Context, c *zk.Conn) error { return expect.Err(c.Get(ctx, "/r")) }},
		"Exists":  {true, func(ctx context.Context, c *zk.Conn) error { return expect.Err(c.Exists(ctx, "/r")) }},
		"Names":   {true, func(ctx context.Context, c *zk.Conn) error { return expect.Err(c.Names(ctx, "/r")) }},
		"Sync":    {true, func(ctx context.Context, c *zk.Conn) error { return c.Sync(ctx, "/r") }},
		"GetACL": {true, func(ctx context.Context, c *zk.Conn) error {
			_, _, err := c.GetACL(ctx, "/r")
			return err
		}},
		"ChildrenCount": {true, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.ChildrenCount(ctx, "/r"))
		}},
		"Ephemerals": {true, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.Ephemerals(ctx, "/r"))
		}},
		"WhoAmI": {true, func(ctx context.Context, c *zk.Conn) error { return expect.Err(c.WhoAmI(ctx)) }},
		"MakePath": {true, func(ctx context.Context, c *zk.Conn) error {
			return c.MakePath(ctx, "/r", zk.Persistent, nil)
		}},
		"Subscribe": {true, func(ctx context.Context, c *zk.Conn) error {
			return expect.Err(c.Subscribe(ctx, "/r", true))
		}},
		"RemoveWatches": {true, func(ctx context.Context, c *zk.Conn) error { return c.RemoveWatches(ctx, "/r") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
					Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
						return piped(func(conn net.Conn) {
							serve(conn, func(xid int32, op jute.OpCode) []byte {
								switch {
								case op == jute.OpCloseSession:
									return reply(xid, jute.OK, 0, nil)
								case asked.Add(1) == 1:
									return nil // the connection ends
								}
								return reply(xid, jute.BadArguments, 0, nil)
							})
						}), nil
					})}))(t)
				want, times := zk.ErrConnectionLost, int32(1)
				if x.again {
					want, times = zk.ErrBadArguments, 2
				}
				expect.Is(t, x.call(t.Context(), c), want)
				must.OK(t, c.Await(t.Context()))
				synctest.Wait()
				expect.Equal(t, asked.Load(), times, "asked")
				must.OK(t, c.Close(t.Context()))
			})
		})
	}
}

// A read without a waiting caller is not asked again, be it given up before the connection is lost or after.
func TestReadGivenUpIsNotAskedAgain(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var refusing atomic.Bool
			var asked atomic.Int32
			c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
				Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
					if refusing.Load() {
						return nil, errNo
					}
					return piped(func(conn net.Conn) {
						serve(conn, func(xid int32, op jute.OpCode) []byte {
							if op == jute.OpSync {
								asked.Add(1)
								conn.Read(make([]byte, 1)) // until the client ends the connection
								return nil
							}
							return reply(xid, jute.OK, 0, nil)
						})
					}), nil
				})}))(t)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			p := c.Pipe()
			read := p.Sync("/r")
			p.Send()
			synctest.Wait()
			must.Equal(t, asked.Load(), 1, "asked")
			want := zk.ErrConnectionLost
			if !before {
				want = context.Canceled
				refusing.Store(true)
				c.Reconnect()
				synctest.Wait()
				must.Equal(t, c.Pending(), 1, "requests that wait for a connection")
			}
			_, err := read.Wait(ended)
			must.Is(t, err, context.Canceled)
			if before {
				c.Reconnect()
				synctest.Wait()
			}
			must.Equal(t, c.Pending(), 0, "requests")
			_, err = read.Wait(t.Context())
			must.Is(t, err, want)
			refusing.Store(false)
			must.OK(t, c.Await(t.Context()))
			synctest.Wait()
			must.Equal(t, asked.Load(), 1, "asked")
			must.OK(t, c.Close(t.Context()))
		})
	}
}

// ends is a context that ends when something has happened.
type ends struct {
	context.Context
	when <-chan struct{}
}

func (e ends) Done() <-chan struct{} {
	<-e.when
	return e.when
}

func (ends) Err() error { return context.Canceled }

// A Dial that is given up just when it connects waits for no answer to the end of its session.
func TestDialGivenUpWhileItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 { // it is not given up in one of two
			connected := make(chan struct{})
			began := time.Now()
			c, err := zk.Dial(ends{t.Context(), connected}, "a", zk.Options{
				OnState: func(s zk.State) {
					if s == zk.Connected {
						close(connected)
					}
				},
				Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
					return piped(func(conn net.Conn) {
						readRequest(conn)
						conn.Write(granted)
						mute(conn)
					}), nil
				})})
			if err == nil {
				quit(c)
				continue
			}
			must.Is(t, err, context.Canceled)
			must.Equal(t, time.Since(began), 0, "waited")
			return
		}
		t.Error("it is never given up")
	})
}

// Two goroutines that close a Conn end the session once, and both wait for it.
func TestCloseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		answer := make(chan struct{})
		c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
			Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
				return piped(func(conn net.Conn) {
					serve(conn, func(xid int32, op jute.OpCode) []byte {
						asked.Add(1)
						<-answer
						return reply(xid, jute.OK, 0, nil)
					})
				}), nil
			})}))(t)
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- c.Close(t.Context()) }()
		}
		synctest.Wait()
		must.Equal(t, asked.Load(), 1, "requests")
		must.Equal(t, c.Pending(), 1, "requests")
		must.Equal(t, len(ended), 0, "a Close returned before the answer")
		close(answer)
		for range 2 {
			must.OK(t, <-ended)
		}
		must.OK(t, c.Close(t.Context()))
		must.Equal(t, asked.Load(), 1, "requests")
	})
}
