package zk_test

import (
	"bytes"
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

// A server that keeps sending is not silent. It may be in the middle of a long answer, or it may begin each
// answer before the client has read the one before.
func TestServerThatSendsWithoutAPauseIsNotSilent(t *testing.T) {
	const size, pieces = 60_000, 30 // one piece comes each second, and the session timeout is 10 s
	answer := jute.AppendInt(nil, size)
	answer = append(answer, make([]byte, size+68)...)
	long := reply(1, jute.OK, int32(len(answer)), answer)
	ping := reply(jute.XidPing, jute.OK, 0, nil)
	pings := bytes.Repeat(ping, pieces)[len(ping)/2:] // each piece ends in the middle of a ping
	for name, sent := range map[string][]byte{"many answers": pings, "a long answer": long} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				serves := func(conn net.Conn) {
					readRequest(conn)
					conn.Write(granted)
					if name == "many answers" {
						conn.Write(ping[:len(ping)/2])
					} else {
						readRequest(conn)
					}
					go mute(conn)
					for rest := sent; len(rest) > 0; {
						n := min(len(rest), (len(sent)+pieces-1)/pieces)
						if _, err := conn.Write(rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
						time.Sleep(time.Second)
					}
					conn.Write(reply(2, jute.OK, 0, nil))
				}
				c := must.Get(zk.Dial(t.Context(), "a", zk.Options{Timeout: 10 * time.Second,
					Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
						if dials.Add(1) > 1 {
							return piped(mute), nil
						}
						return piped(serves), nil
					})}))(t)
				if name == "a long answer" {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
					defer cancel()
					n, err := c.Get(ctx, "/r")
					expect.OK(t, err)
					expect.Equal(t, len(n.Data), size)
				} else {
					time.Sleep((pieces - 1) * time.Second)
				}
				expect.Equal(t, dials.Load(), 1, "connections")
				quit(c)
				time.Sleep(time.Minute) // time for the server to notice the end
			})
		})
	}
}

// If a subscription is closed, or a server refuses to set its watch again, each caller of Next learns that
// the subscription is over.
func TestSubscriptionThatEndsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		c := must.Get(zk.Dial(t.Context(), "a", zk.Options{
			Dial: dialled(func(_ context.Context, _, before int) (net.Conn, error) {
				near := piped(func(conn net.Conn) {
					serve(conn, func(xid int32, op jute.OpCode) []byte {
						code := jute.OK
						if before > 0 && op == jute.OpSetWatches2 {
							code = jute.Unimplemented
						}
						return reply(xid, code, 0, nil)
					})
				})
				conns <- near
				return near, nil
			})}))(t)
		first := <-conns
		ended := make(chan error, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next := func(s *zk.Subscription) {
			for {
				ev, err := s.Next(ctx)
				if err != nil {
					ended <- err
					return
				}
				ended <- nil
				expect.That(t, ev.Type == zk.EventLost || ev.Type == zk.EventResumed, "event %v", ev.Type)
			}
		}
		s := must.Get(c.Subscribe(t.Context(), "/a", true))(t)
		for range 2 {
			go next(s)
		}
		synctest.Wait()
		must.OK(t, s.Close(t.Context()))
		for range 2 {
			expect.Is(t, <-ended, zk.ErrClosed, "after Close")
		}
		lost := must.Get(c.Subscribe(t.Context(), "/b", true))(t)
		kept := c.Watches()
		go next(lost)
		first.Close()
		expect.OK(t, <-ended, "the connection is resumed")
		expect.OK(t, <-ended, "the watch is lost")
		expect.Is(t, <-ended, zk.ErrClosed)
		expect.Equal(t, c.Watches(), kept-1, "watches")
		quit(c)
	})
}

// A path that does not begin with a slash names no node, so it cannot lead out of the chroot. Ephemerals
// leaves out the nodes outside the chroot, too.
func TestChrootIsNotLeft(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		ctx := within(t)
		c := dial(t, addr, zk.Options{})
		node(t, c, "/app", "")
		node(t, c, "/apple", "secret")
		must.Get(c.Create(ctx, zk.Create{Path: "/appendix", Mode: zk.Ephemeral}))(t)
		s := c.Session()
		within := dial(t, addr+"/app", zk.Options{})
		expect.Is(t, expect.Err(within.Get(ctx, "le")), zk.ErrNoNode)
		must.Get(within.Create(ctx, zk.Create{Path: "/own", Mode: zk.Ephemeral}))(t)
		expect.List(t, must.Get(within.Ephemerals(ctx, "/"))(t), []string{"/own"})
		taken := dial(t, addr+"/app", zk.Options{Resume: s})
		expect.List(t, must.Get(taken.Ephemerals(ctx, "/"))(t), nil)
	})
}

// MakePath needs no permission for a node that already exists.
func TestMakePathOfANodeThatExists(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		ctx := within(t)
		c := dial(t, addr, zk.Options{})
		node(t, c, "/p", "")
		node(t, c, "/p/q", "")
		must.Get(c.SetACL(ctx, "/p", zk.WorldACL(zk.PermRead), -1))(t)
		expect.OK(t, c.MakePath(ctx, "/p/q", zk.Persistent, nil))
		expect.Is(t, c.MakePath(ctx, "/p/r", zk.Persistent, nil), zk.ErrNoAuth)
	})
}
