//go:build stock

package stock

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestGoClient runs go-zookeeper/zk: operations, watches, multi, locks under
// contention, reconnects, and its parsers of four-letter words.
func TestGoClient(t *testing.T) {
	beside(t)
	g := startTarget(t, generous())
	ref := startReferee(t)
	ref.relay = startRelay(t, g.addrs)
	s := &goSuite{target: g, ref: ref, root: fmt.Sprintf("/go-%d", time.Now().UnixNano())}
	s.connect(t).mustCreate(t, s.root)
	t.Run("operations", s.operations)
	t.Run("multi", s.multi)
	t.Run("acl", s.acl)
	t.Run("watches", s.watches)
	t.Run("lock excludes across sessions", s.lock)
	t.Run("reconnect keeps session, auth and watches", s.reconnect)
	t.Run("expiry makes a new session", s.expiry)
	t.Run("four-letter words are parsed", s.words)
	ref.judge(t, 2)
}

type goSuite struct {
	target target
	ref    *referee
	root   string
}

// goConn is a client connection and its session events.
type goConn struct {
	*zk.Conn
	events <-chan zk.Event
}

// connect() opens a session that outlives a stall of this process or of a server.
func (s *goSuite) connect(t *testing.T, addrs ...string) goConn {
	t.Helper()
	if len(addrs) == 0 {
		addrs = s.target.addrs
	}
	return s.session(t, 30*time.Second, addrs...)
}

func (s *goSuite) session(t *testing.T, timeout time.Duration, addrs ...string) goConn {
	t.Helper()
	c, events := must.Get2(zk.Connect(addrs, timeout, zk.WithLogger(log.New(io.Discard, "", 0))))(t)
	t.Cleanup(c.Close)
	g := goConn{c, events}
	g.await(t, zk.StateHasSession)
	return g
}

func (c goConn) await(t *testing.T, want zk.State) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-c.events:
			if e.State == want {
				return
			}
		case <-timeout:
			t.Fatalf("state %v never came", want)
		}
	}
}

func (c goConn) mustCreate(t *testing.T, path string) string {
	t.Helper()
	p := must.Get(c.Create(path, []byte("0"), 0, zk.WorldACL(zk.PermAll)))(t)
	return p
}

func check[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	must.That(t, reflect.DeepEqual(got, want), "%s: got %v, want %v", what, got, want)
}

// caughtUp lets `c` see all earlier writes, also those of other clients.
func (c goConn) caughtUp(t *testing.T) goConn {
	t.Helper()
	must.Get(c.Sync("/"))(t)
	return c
}

func expectEvent(t *testing.T, ch <-chan zk.Event, kind zk.EventType, path string) {
	t.Helper()
	select {
	case e := <-ch:
		check(t, "event type", e.Type, kind)
		check(t, "event path", e.Path, path)
	case <-time.After(time.Minute):
		t.Fatalf("%v %s never came", kind, path)
	}
}

func (s *goSuite) operations(t *testing.T) {
	c := s.connect(t)
	all := zk.WorldACL(zk.PermAll)
	d := c.mustCreate(t, s.root+"/ops")
	p, err := c.Create(d+"/s-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
	check(t, "create", fmt.Sprint(p, err), d+"/s-0000000000<nil>")
	_, st, err := c.Get(p)
	check(t, "owner", fmt.Sprint(st.EphemeralOwner, err), fmt.Sprint(c.SessionID(), err))
	p, err = c.CreateProtectedEphemeralSequential(d+"/p-", []byte("x"), all)
	must.That(t, err == nil && strings.Contains(p, "/_c_"), "protected create: %q, %v", p, err)
	p, err = c.CreateContainer(d+"/c", nil, zk.FlagContainer, all)
	check(t, "container", fmt.Sprint(p, err), d+"/c<nil>")
	p, err = c.CreateTTL(d+"/ttl", nil, zk.FlagTTL, all, time.Hour)
	check(t, "ttl", fmt.Sprint(p, err), d+"/ttl<nil>")
	st, err = c.Set(d, []byte("one"), 0)
	must.That(t, err == nil && st.Version == 1, "%v %v", st, err)
	_, err = c.Set(d, nil, 0)
	check(t, "old version", err, zk.ErrBadVersion)
	check(t, "not empty", c.Delete(d, -1), zk.ErrNotEmpty)
	_, err = c.Create(d+"/no/x", nil, 0, all)
	check(t, "no parent", err, zk.ErrNoNode)
	ok, _, err := c.Exists(d + "/no")
	check(t, "exists", fmt.Sprint(ok, err), "false <nil>")
	names, st, err := c.Children(d)
	check(t, "children", fmt.Sprint(len(names), st.NumChildren, err), "4 4 <nil>")
	path, err := c.Sync(d)
	check(t, "sync", fmt.Sprint(path, err), d+"<nil>")
}

func (s *goSuite) multi(t *testing.T) {
	c := s.connect(t)
	all := zk.WorldACL(zk.PermAll)
	d := c.mustCreate(t, s.root+"/multi")
	r, err := c.Multi(
		&zk.CreateRequest{Path: d + "/a", Data: []byte("1"), Acl: all},
		&zk.SetDataRequest{Path: d + "/a", Data: []byte("2"), Version: 0},
		&zk.CheckVersionRequest{Path: d + "/a", Version: 1},
		&zk.CreateRequest{Path: d + "/s-", Acl: all, Flags: zk.FlagSequence},
	)
	must.OK(t, err)
	check(t, "create", r[0].String, d+"/a")
	check(t, "set", r[1].Stat.Version, 1)
	check(t, "sequential", r[3].String, d+"/s-0000000001")
	_, err = c.Multi(&zk.DeleteRequest{Path: d + "/a", Version: -1}, &zk.CheckVersionRequest{
		Path: d, Version: 7})
	check(t, "failed multi", err, zk.ErrBadVersion)
	ok, _, err := c.Exists(d + "/a")
	check(t, "nothing happened", fmt.Sprint(ok, err), "true <nil>")
}

func (s *goSuite) acl(t *testing.T) {
	c, other := s.connect(t), s.connect(t)
	d := c.mustCreate(t, s.root+"/acl")
	must.OK(t, c.AddAuth("digest", []byte("gopher:pw")))
	must.Get(c.Create(d+"/mine", nil, 0, zk.DigestACL(zk.PermAll, "gopher", "pw")))(t)
	_, _, err := other.caughtUp(t).Get(d + "/mine")
	check(t, "foreign read", err, zk.ErrNoAuth)
	acl, _, err := c.GetACL(d + "/mine")
	check(t, "acl", fmt.Sprint(acl, err), fmt.Sprint(zk.DigestACL(zk.PermAll, "gopher", "pw"), nil))
	st, err := c.SetACL(d+"/mine", zk.WorldACL(zk.PermRead), 0)
	must.That(t, err == nil && st.Aversion == 1, "%v %v", st, err)
	must.Get2(other.caughtUp(t).Get(d + "/mine"))(t)
}

func (s *goSuite) watches(t *testing.T) {
	c, w := s.connect(t), s.connect(t)
	d := c.mustCreate(t, s.root+"/watches")
	_, _, born, err := c.ExistsW(d + "/n")
	must.OK(t, err)
	_, _, child, err := c.ChildrenW(d)
	must.OK(t, err)
	w.mustCreate(t, d+"/n")
	expectEvent(t, born, zk.EventNodeCreated, d+"/n")
	expectEvent(t, child, zk.EventNodeChildrenChanged, d)
	_, _, data, err := c.caughtUp(t).GetW(d + "/n")
	must.OK(t, err)
	w.Set(d+"/n", nil, -1)
	expectEvent(t, data, zk.EventNodeDataChanged, d+"/n")
	_, _, gone, err := c.caughtUp(t).GetW(d + "/n")
	must.OK(t, err)
	w.Delete(d+"/n", -1)
	expectEvent(t, gone, zk.EventNodeDeleted, d+"/n")
}

// contendGo takes the lock again and again, as often as `rounds` says, and reports each hold to the referee.
func (s *goSuite) contendGo(c goConn, path, key string, rounds int) error {
	conn, err := net.Dial("tcp", s.ref.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	for range rounds {
		l := zk.NewLock(c.Conn, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		verdict := s.ref.enter(conn, key, "x", 1)
		time.Sleep(time.Millisecond)
		s.ref.leave(conn, key)
		if verdict != "ok" {
			return errors.New(verdict)
		}
		if err := l.Unlock(); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
	return nil
}

func (s *goSuite) lock(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		c := s.connect(t)
		wg.Go(func() {
			expect.OK(t, s.contendGo(c, s.root+"/lock", "go-lock", 25))
		})
	}
	wg.Wait()
	names, _, err := s.connect(t).caughtUp(t).Children(s.root + "/lock")
	check(t, "contenders left", fmt.Sprint(names, err), "[] <nil>")
}

func (s *goSuite) reconnect(t *testing.T) {
	c, w := s.connect(t, s.ref.relay.addr()), s.connect(t)
	d := c.mustCreate(t, s.root+"/reconnect")
	must.OK(t, c.AddAuth("digest", []byte("gopher:pw")))
	must.Get(c.Create(d+"/mine", nil, zk.FlagEphemeral, zk.AuthACL(zk.PermAll)))(t)
	id := c.SessionID()
	for i := range 3 {
		c.mustCreate(t, fmt.Sprintf("%s/n%d", d, i))
		_, _, data, err := c.GetW(fmt.Sprintf("%s/n%d", d, i))
		must.OK(t, err)
		_, _, born, err := c.ExistsW(fmt.Sprintf("%s/born%d", d, i))
		must.OK(t, err)
		s.ref.relay.refuse(200 * time.Millisecond)
		must.Get(w.Set(fmt.Sprintf("%s/n%d", d, i), []byte("1"), -1))(t)
		w.mustCreate(t, fmt.Sprintf("%s/born%d", d, i))
		expectEvent(t, data, zk.EventNodeDataChanged, fmt.Sprintf("%s/n%d", d, i))
		expectEvent(t, born, zk.EventNodeCreated, fmt.Sprintf("%s/born%d", d, i))
		must.OK(t, expect.Err(c.Set(d+"/mine", nil, -1)), "set with auth after reconnect")
	}
	check(t, "session", c.SessionID(), id)
	// The client takes and releases a lock while the relay cuts its connection from time to time. A request may
	// fail, but two clients never hold the lock at once.
	expect.OK(t, s.contendGo(c, s.root+"/lock2", "go-lock-2", 10))
}

func (s *goSuite) expiry(t *testing.T) {
	c, w := s.session(t, 10*time.Second, s.ref.relay.addr()), s.connect(t)
	d := c.mustCreate(t, s.root+"/expiry")
	must.Get(c.Create(d+"/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
	_, _, gone, err := w.caughtUp(t).ExistsW(d + "/e")
	must.OK(t, err)
	old := c.SessionID()
	s.ref.relay.refuse(time.Hour)
	expectEvent(t, gone, zk.EventNodeDeleted, d+"/e")
	s.ref.relay.refuse(0)
	c.await(t, zk.StateExpired)
	c.await(t, zk.StateHasSession)
	expect.That(t, c.SessionID() != old, "the session id was used again")
}

func (s *goSuite) words(t *testing.T) {
	for i, ok := range zk.FLWRuok(s.target.addrs, 30*time.Second) {
		check(t, s.target.addrs[i]+" ruok", ok, true)
	}
	c := s.connect(t)
	c.caughtUp(t) // a session without a request shows no lcxid
	// The second result is false with every ZooKeeper: the line of the command's
	// own connection has fewer fields than the parser wants.
	clients, _ := zk.FLWCons(s.target.addrs, 30*time.Second)
	found := false
	for _, list := range clients {
		for _, one := range list.Clients {
			found = found || one.SessionID == c.SessionID()
		}
	}
	check(t, "own session in cons", found, true)
	if s.target.kind == cluster.ZooKeeper {
		// go-zookeeper can read only the build date of ZooKeeper 3.4, so this is not tested with ZooKeeper
		// 3.8.
		t.Log("FLWSrvr cannot parse ZooKeeper 3.8's build date")
		return
	}
	stats, ok := zk.FLWSrvr(s.target.addrs, 30*time.Second)
	for i, st := range stats {
		if !ok {
			t.Fatalf("srvr of %s: %v", s.target.addrs[i], st.Error)
		}
		if st.Mode == zk.ModeUnknown || st.NodeCount < 4 || !strings.HasPrefix(st.Version, "3.9.") {
			t.Errorf("srvr of %s: %+v", s.target.addrs[i], st)
		}
	}
}
