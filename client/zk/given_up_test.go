package zk_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// served() returns a Conn whose server answers each request with what answer() returns.
func served(t *testing.T, answer func(xid int32, op jute.OpCode) []byte) *zk.Conn {
	return must.Get(zk.Dial(t.Context(), "a", zk.Options{
		Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
			return piped(func(conn net.Conn) { serve(conn, answer) }), nil
		})}))(t)
}

// A ZooKeeper before 3.9 keeps only the newest persistent watch of a session at a path. In this test that
// watch is recursive, and the caller of its subscription has given up. The other subscription at the path
// must still hear when the list of children changes.
func TestGivenUpSubscriptionTakesNoEventsFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches, hold := 0, make(chan struct{})
		c := served(t, func(xid int32, op jute.OpCode) []byte {
			var event []byte
			switch op {
			case jute.OpAddWatch:
				if watches++; watches > 1 {
					<-hold
				}
			case jute.OpSync: // the server has only the recursive watch, which reports the new child
				event = jute.AppendEventFrame(nil, 2, jute.EventCreated, "/s/a")
			}
			return append(event, reply(xid, jute.OK, 0, nil)...)
		})
		s := must.Get(c.Subscribe(t.Context(), "/s", false))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Is(t, expect.Err(c.Subscribe(ctx, "/s", true)), context.DeadlineExceeded)
		close(hold)
		must.OK(t, c.Sync(t.Context(), "/s"))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ev, err := s.Next(ctx)
		expect.OK(t, err)
		expect.Equal(t, ev, zk.Event{Type: zk.EventChildrenChanged, Path: "/s"})
		quit(c)
	})
}

// A server silently drops the watch of a node that the session may no longer read. RemoveWatches also ends a
// wait for such a watch, although the server no longer has it.
func TestRemoveWatchesEndsWaitsWithoutAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := served(t, func(xid int32, op jute.OpCode) []byte {
			switch op {
			case jute.OpExists:
				return reply(xid, jute.NoNode, 0, nil)
			case jute.OpRemoveWatches:
				return reply(xid, jute.NoWatcher, 0, nil)
			}
			return reply(xid, jute.OK, 0, nil)
		})
		_, w, err := c.ExistsW(t.Context(), "/a")
		must.OK(t, err)
		s := must.Get(c.Subscribe(t.Context(), "/a", false))(t)
		must.OK(t, c.RemoveWatches(t.Context(), "/a"))
		expect.Equal(t, w.Event().Type, zk.EventLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ev, err := s.Next(ctx)
		expect.OK(t, err)
		expect.Equal(t, ev.Type, zk.EventLost)
		expect.Equal(t, c.Watches(), 0, "watches")
		quit(c)
	})
}

// The Conn refuses an identity that is too long for a request, and does not keep it. If it kept it, it could
// not connect again, because it presents each identity on each connection.
func TestTooLongIdentityIsNotPresented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := served(t, func(xid int32, op jute.OpCode) []byte { return reply(xid, jute.OK, 0, nil) })
		err := c.AddAuth(t.Context(), zk.Auth{Scheme: "digest", Secret: make([]byte, 1<<20)})
		expect.Is(t, err, zk.ErrTooLarge)
		c.Reconnect()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		expect.OK(t, c.Sync(ctx, "/"))
		quit(c)
	})
}

// When a handshake has confirmed a session, the session lives for at least its timeout, even if the
// connection broke right after the handshake. If a server then refuses the session, the Conn keeps it, even
// if that server would grant a new one.
func TestSessionLivesFromItsLastHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost time.Time // when the first connection broke; the timeout is 10 s
		confirmed := false
		c := must.Get(zk.Dial(t.Context(), "a", zk.Options{Auth: []zk.Auth{{Scheme: "digest"}},
			Dial: dialled(func(context.Context, int, int) (net.Conn, error) {
				since := time.Since(lost)
				switch {
				case lost.IsZero() || since > 15*time.Second:
					return piped(obliging), nil
				case since < 8*time.Second:
					return nil, errors.New("unreachable")
				case !confirmed:
					confirmed = true
					return piped(func(conn net.Conn) {
						readRequest(conn)
						conn.Write(granted)
						readRequest(conn)
					}), nil
				}
				return piped(func(conn net.Conn) {
					d := jute.NewDecoder(readRequest(conn))
					d.Int()
					d.Long()
					d.Int()
					if d.Err() == nil && d.Long() == 0 {
						conn.Write(granted)
						readRequest(conn)
					}
				}), nil
			})}))(t)
		lost = time.Now()
		c.Reconnect()
		time.Sleep(20 * time.Second)
		expect.OK(t, c.Err())
		expect.That(t, confirmed, "no handshake was confirmed")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.OK(t, c.Sync(ctx, "/"))
		quit(c)
	})
}
