package zk_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
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

// faulty is a connection that fails at one step: `step` names it, such as "Write 2" for the second Write.
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

// Whichever step of a connection fails, the Conn connects again. It reports the cause only if the step failed
// before the connection carried a session.
func TestConnectionThatFailsIsReplaced(t *testing.T) {
	for step, want := range map[string]string{
		"SetDeadline 1":     "trouble: refused connected closed", // the deadline of the handshake
		"Write 1":           "trouble: refused connected closed", // the request of the handshake
		"Write 2":           "trouble: refused connected closed", // the request that presents the identity
		"SetDeadline 2":     "trouble: refused connected closed", // lifts the deadline of the handshake
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

// If a server does not know the session, the Conn asks it for a new session, to learn whether the server
// works. If the server grants one, and the old session had no connection for its whole timeout, the old
// session is over. The Conn then ends the new session and closes its connection.
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
							return // the Conn asks why the server closes connections, or asks for the old session
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

// A Conn that resumes the session of another Conn asks for it until a server has the session.
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

// The Conn sends the first ping in time, even if it sent a request just before: a server ends the session if
// it hears nothing for the timeout.
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

// A request that only reads, or that may run twice without harm, is sent again on the next connection. A
// request that changes something is not.
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
									return nil // send no answer, and end the connection
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

// A read whose caller has stopped waiting is not sent again, whether the caller stopped before or after the
// connection was lost.
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
								conn.Read(make([]byte, 1)) // returns when the client ends the connection
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

// writesLater is a connection whose writes, like those of a socket, do not wait for the reader.
type writesLater struct {
	net.Conn
	out chan []byte
}

func (w *writesLater) Write(b []byte) (int, error) {
	w.out <- bytes.Clone(b)
	return len(b), nil
}

func (w *writesLater) start() (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for b := range w.out {
			w.Conn.Write(b)
		}
	}()
	return done
}

// If a server's answers are bad, the Conn does not connect again and again without a pause. The server of
// this test answers the Conn's own requests at the start of a connection well.
func TestServerThatAnswersBadlyIsAskedSeldom(t *testing.T) {
	for name, bad := range map[string]func(xid int32) []byte{
		"cut body":        func(xid int32) []byte { return reply(xid, jute.OK, 2, []byte{0}) },
		"nothing":         func(int32) []byte { return nil },
		"no answer":       func(xid int32) []byte { return reply(xid, jute.OK, 2, []byte{0, 0}) },
		"of another call": func(xid int32) []byte { return reply(xid+1, jute.OK, 0, nil) },
		"session moved":   func(xid int32) []byte { return reply(xid, -118, 0, nil) },
		"good, then bad": func(xid int32) []byte {
			return append(jute.AppendEventFrame(nil, -1, jute.EventDeleted, "/a"), reply(xid+1, jute.OK, 0, nil)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				c := must.Get(zk.Open("a", zk.Options{
					Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
						dials.Add(1)
						return piped(func(conn net.Conn) {
							later := &writesLater{conn, make(chan []byte, 100)}
							written := later.start()
							serve(later, func(xid int32, op jute.OpCode) []byte {
								if op == jute.OpGetData {
									return bad(xid)
								}
								return reply(xid, jute.OK, 0, nil)
							})
							close(later.out)
							<-written
						}), nil
					})}))(t)
				must.Get(c.Subscribe(t.Context(), "/s", false))(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := c.Get(ctx, "/r")
				is(t, err, context.DeadlineExceeded)
				n := dials.Load()
				expect.That(t, n > 30 && n < 120, "%d connections in a minute", n)
				quit(c)
			})
		})
	}
}
