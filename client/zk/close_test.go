package zk_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Close does not wait for a silent server, whatever the Conn is doing.
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

// ends is a context that ends when the channel in its field `when` is closed.
type ends struct {
	context.Context
	when <-chan struct{}
}

func (e ends) Done() <-chan struct{} {
	<-e.when
	return e.when
}

func (ends) Err() error { return context.Canceled }

// If the context of a Dial ends just as the session begins, Dial returns at once. It does not wait for the
// server to end the session.
func TestDialGivenUpWhileItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 { // in about half of the rounds, Dial returns before the context ends
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

// If two goroutines close a Conn, the Conn ends the session once, and both goroutines wait for that.
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

// A second Close waits for the first one, but no longer than its own context lives.
func TestSecondCloseHasItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		c := served(t, func(xid int32, _ jute.OpCode) []byte {
			<-answer
			return reply(xid, jute.OK, 0, nil)
		})
		first := make(chan error, 1)
		go func() { first <- c.Close(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Is(t, c.Close(ctx), context.DeadlineExceeded)
		expect.Equal(t, time.Since(began), time.Second)
		close(answer)
		must.OK(t, <-first)
	})
}
