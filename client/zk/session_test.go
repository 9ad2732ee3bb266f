package zk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/zlocktest"
)

// TestReadsAreRepeatedWritesAreNot loses answers. The Conn sends the reads again, but not the writes.
func TestReadsAreRepeatedWritesAreNot(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/r", "x")
		for _, op := range []int32{faultproxy.OpGetData, faultproxy.OpGetChildren2, faultproxy.OpExists,
			faultproxy.OpSync} {
			for _, do := range []faultproxy.Action{faultproxy.CutBefore, faultproxy.CutAfter} {
				for _, kind := range []faultproxy.Kind{faultproxy.Request, faultproxy.Reply} {
					if do == faultproxy.CutAfter && kind == faultproxy.Reply {
						continue
					}
					rule := p.Add(faultproxy.Rule{Kind: kind, Op: op, Under: "/r", Nth: 1, Do: do})
					var err error
					switch op {
					case faultproxy.OpGetData:
						_, err = c.Get(ctx, "/r")
					case faultproxy.OpGetChildren2:
						_, err = c.Names(ctx, "/r")
					case faultproxy.OpExists:
						_, err = c.Exists(ctx, "/r")
					case faultproxy.OpSync:
						err = c.Sync(ctx, "/r")
					}
					must.OK(t, err)
					soon(t, "the cut", rule.Acted())
					rule.Remove()
				}
			}
		}
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetData, Do: faultproxy.CutBefore})
		for {
			before := must.Get(c.Get(ctx, "/r"))(t).Stat.Version
			_, err := c.Set(ctx, "/r", []byte("y"), -1)
			is(t, err, zk.ErrConnectionLost)
			is(t, err, zk.ErrUncertain)
			select {
			case <-rule.Acted():
			default:
				continue // the cut of an earlier round came late and ended this connection: begin again
			}
			rule.Remove()
			n := must.Get(c.Get(ctx, "/r"))(t)
			must.Equal(t, string(n.Data), "y",
				"written %d times: string(n.Data)", n.Stat.Version-before)
			must.Equal(t, n.Stat.Version, before+1,
				"written %d times: n.Stat.Version", n.Stat.Version-before)
			break
		}
	})
}

// If a server answers CONNECTIONLOSS, because it lost its link to the leader, the Conn repeats a read. After
// a write, it is then unknown whether the write took effect.
func TestReadsThatFailedBetweenServersAreRepeated(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/r", "x")
		for op, read := range map[int32]func(context.Context) error{
			faultproxy.OpGetData:      func(ctx context.Context) error { _, err := c.Get(ctx, "/r"); return err },
			faultproxy.OpGetChildren2: func(ctx context.Context) error { _, err := c.Names(ctx, "/r"); return err },
			faultproxy.OpExists:       func(ctx context.Context) error { _, err := c.Exists(ctx, "/r"); return err },
			faultproxy.OpSync:         func(ctx context.Context) error { return c.Sync(ctx, "/r") },
		} {
			broken := faultproxy.Rule{Kind: faultproxy.Request, Op: op, Under: "/r", Do: faultproxy.Refused, Code: -4}
			always := p.Add(broken)
			short, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- read(short) }()
			eventually(t, "the read to be repeated", func() bool { return always.Seen() > 2 })
			cancel()
			is(t, soon(t, "the end of the wait", done), context.Canceled)
			always.Remove()
			broken.Nth = 1
			once := p.Add(broken)
			must.OK(t, read(ctx))
			soon(t, "the failure", once.Acted())
			once.Remove()
		}
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: "/r", Do: faultproxy.Refused, Code: -4})
		_, err := c.Set(ctx, "/r", nil, -1)
		is(t, err, zk.ErrUncertain)
		done := make(chan error, 1)
		go func() {
			_, err := c.Get(ctx, "/r")
			done <- err
		}()
		eventually(t, "the read to be repeated", func() bool { return rule.Seen() > 3 })
		must.OK(t, c.Close(ctx))
		is(t, soon(t, "the read of a closed session", done), zk.ErrClosed)
	})
}

// Some error codes leave open whether a write took effect. With every other code it did not.
func TestCodesThatLeaveTheOutcomeOpen(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		node(t, c, "/r", "")
		open := map[int32]bool{-1: true, -2: true, -3: true, -4: true, -7: true}
		for _, code := range []int32{-1, -2, -3, -4, -5, -6, -7, -8, -9, -101, -110} {
			rule := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: "/r", Do: faultproxy.Refused, Code: code})
			_, err := c.Set(within(t), "/r", nil, -1)
			rule.Remove()
			must.Fails(t, err, "%d", code)
			must.Equal(t, errors.Is(err, zk.ErrUncertain), open[code], "%d: %v", code, err)
			must.Equal(t, zk.IsRefusal(err), !open[code], "%d: %v", code, err)
		}
	})
}

// If a server answers CONNECTIONLOSS to a read whose caller no longer waits, the Conn does not repeat it.
func TestReadThatIsGivenUpIsNotRepeated(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		cut, stop := context.WithCancel(ctx)
		left := make(chan struct{})
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpExists, Nth: 1, Do: faultproxy.Fail,
			Code: -4, Then: func() { stop(); <-left }})
		defer rule.Remove()
		pipe := c.Pipe()
		read := pipe.Exists("/")
		pipe.Send()
		_, err := read.Wait(cut)
		close(left)
		is(t, err, context.Canceled)
		_, err = read.Wait(ctx)
		is(t, err, zk.ErrUncertain)
		must.Equal(t, rule.Seen(), 1, "answers")
	})
}

// TestLostAnswerIsNoticed drops one answer and leaves the connection alone.
func TestLostAnswerIsNoticed(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/r", "x")
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetData, Nth: 1,
			Do: faultproxy.Drop})
		set := make(chan error, 1)
		go func() {
			_, err := c.Set(ctx, "/r", []byte("y"), -1)
			set <- err
		}()
		soon(t, "the drop", rule.Acted())
		n := must.Get(c.Get(ctx, "/r"))(t) // its answer comes when the lost answer to Set is due
		must.Equal(t, string(n.Data), "y", "read %q", n.Data)
		is(t, soon(t, "the write", set), zk.ErrConnectionLost)
	})
}

func TestContextEnds(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/r", "x")
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		p.Record()
		_, err := c.Set(ended, "/r", nil, -1)
		is(t, err, context.Canceled)
		must.That(t, !errors.Is(err, zk.ErrUncertain),
			"sent with an ended context: %v: want !errors.Is(err, zk.ErrUncertain)", err)
		must.Equal(t, p.Count(func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpSetData
		}), 0,
			"sent with an ended context")

		// If the request is under way when the context ends, the outcome is not known.
		hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetData, Do: faultproxy.Hold})
		cut, stop := context.WithCancel(ctx)
		pipe := c.Pipe()
		set := pipe.Set(zk.SetData{Path: "/r", Data: []byte("y"), Version: -1})
		pipe.Send()
		go func() {
			<-hold.Acted()
			stop()
		}()
		_, err = set.Wait(cut)
		is(t, err, context.Canceled)
		is(t, err, zk.ErrUncertain)
		hold.Release()
		if st := must.Get(set.Wait(ctx))(t); st.Version != 1 { // a second Wait() returns the same answer
			t.Fatalf("version %d", st.Version)
		}

		// If the request was not sent, the Conn withdraws it.
		p.Refuse(true)
		p.Cut()
		eventually(t, "the connection to be lost", func() bool { return !c.Session().Connected })
		short, stop2 := context.WithTimeout(ctx, 10*time.Millisecond)
		defer stop2()
		_, err = c.Set(short, "/r", []byte("z"), -1)
		is(t, err, context.DeadlineExceeded)
		must.That(t, !errors.Is(err, zk.ErrUncertain), "nothing was sent, but: %v", err)
		p.Refuse(false)
		n := must.Get(c.Get(ctx, "/r"))(t)
		must.Equal(t, string(n.Data), "y", "read %q", n.Data)
	})
}

func TestSessionEnds(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		var states []zk.State
		var mu sync.Mutex
		c, p := proxied(t, addr, zk.Options{OnState: func(s zk.State) {
			mu.Lock()
			states = append(states, s)
			mu.Unlock()
		}})
		ctx := within(t)
		_, w, err := c.ExistsW(ctx, "/nothing")
		must.OK(t, err)
		sub := must.Get(c.Subscribe(ctx, "/nothing", true))(t)
		must.OK(t, p.ExpireSession())
		soon(t, "the end", c.Over())
		is(t, c.Err(), zk.ErrSessionExpired)
		must.Equal(t, fired(t, w), zk.EventOver, "event")
		for {
			ev, err := sub.Next(ctx)
			if err != nil {
				is(t, err, zk.ErrSessionExpired)
				break
			}
			must.That(t, ev.Type == zk.EventResumed || ev.Type == zk.EventOver, "event %+v", ev)
		}
		_, err = c.Get(ctx, "/")
		is(t, err, zk.ErrSessionExpired)
		is(t, c.Await(ctx), zk.ErrSessionExpired)
		must.Equal(t, c.Watches(), 0, "watches")
		eventually(t, "the state", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return states[0] == zk.Connected && states[len(states)-1] == zk.Expired
		})
	})
}

func TestCloseEndsEverything(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		o, ctx := dial(t, addr, zk.Options{}), within(t)
		c, _ := proxied(t, addr, zk.Options{})
		must.Get(c.Create(ctx, zk.Create{Path: "/e", Mode: zk.Ephemeral}))(t)
		pipe := c.Pipe()
		set := pipe.Set(zk.SetData{Path: "/e", Data: []byte("last"), Version: -1})
		pipe.Send()
		must.OK(t, c.Close(ctx))
		must.Equal(t, must.Get(set.Wait(ctx))(t).Version, 1,
			"what was asked for before Close must be done")
		must.OK(t, o.Sync(ctx, "/e"))
		st := must.Get(o.Exists(ctx, "/e"))(t)
		must.That(t, st == nil, "the ephemeral node outlived its session")
		_, err := c.Get(ctx, "/")
		is(t, err, zk.ErrClosed)
		is(t, c.Err(), zk.ErrClosed)
		must.OK(t, c.Close(ctx))

		// A client leaves a server that does not answer.
		c, p := proxied(t, addr, zk.Options{})
		p.Blackhole(true)
		pipe = c.Pipe()
		read := pipe.Get("/")
		pipe.Send()
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		is(t, c.Close(short), context.DeadlineExceeded)
		_, err = read.Wait(ctx)
		is(t, err, zk.ErrClosed)
	})
}

// TestIdentitiesComeAlong checks that the client presents its identities on every connection, and that a
// refused identity ends the session.
func TestIdentitiesComeAlong(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{Auth: []zk.Auth{{Scheme: "digest", Secret: []byte("a:1")}}})
		ctx := within(t)
		must.OK(t, c.AddAuth(ctx, zk.Auth{Scheme: "digest", Secret: []byte("b:2")}))
		must.Get(c.Create(ctx, zk.Create{Path: "/a", ACL: zk.DigestACL(zk.PermAll, "a", "1")}))(t)
		must.Get(c.Create(ctx, zk.Create{Path: "/b", ACL: zk.DigestACL(zk.PermAll, "b", "2")}))(t)
		_, err := dial(t, addr, zk.Options{}).Get(ctx, "/a")
		is(t, err, zk.ErrNoAuth)
		for range 5 {
			n := p.Connections()
			p.Cut()
			eventually(t, "another connection", func() bool { return p.Connections() > n })
			must.Get(c.Get(ctx, "/a"))(t)
			must.Get(c.Get(ctx, "/b"))(t)
		}
		_, err = zk.Dial(ctx, addr, zk.Options{Auth: []zk.Auth{{Scheme: "nonsense", Secret: []byte("x")}}})
		is(t, err, zk.ErrAuthFailed)
		is(t, c.AddAuth(ctx, zk.Auth{Scheme: "nonsense"}), zk.ErrAuthFailed)
		soon(t, "the end", c.Over())
	})
}

// A Conn with the ID and the password of another Conn's session takes the session over and can close it. With
// a wrong password it cannot.
func TestResume(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		ctx := within(t)
		c, p := proxied(t, addr, zk.Options{})
		must.Get(c.Create(ctx, zk.Create{Path: "/e", Mode: zk.Ephemeral}))(t)
		key := c.Session()
		p.Refuse(true) // otherwise c would take the session back
		p.Cut()
		wrong := key
		wrong.Password = make([]byte, len(key.Password))
		_, err := zk.Dial(ctx, addr, zk.Options{Resume: wrong})
		is(t, err, zk.ErrSessionExpired)
		heir := dial(t, addr, zk.Options{Resume: key})
		got := heir.Session().ID
		expect.Equal(t, got, key.ID, "session %x", got)
		must.OK(t, heir.Close(ctx))
		p.Refuse(false)
		soon(t, "the end of the session", c.Over())
		is(t, c.Err(), zk.ErrSessionExpired)
	})
}

// The Conn gives up a connection on which it hears nothing for two thirds of the timeout. Its pings keep an
// idle connection alive. The test uses virtual time.
func TestSilentServerIsLeft(t *testing.T) {
	zlocktest.Virtual(t, func(t *testing.T, s *zlocktest.Server) {
		link := s.Link()
		c := must.Get(zk.Dial(t.Context(), s.Addr, zk.Options{Timeout: 12 * time.Second,
			Dial: func(_ context.Context, network, addr string) (net.Conn, error) {
				return link.Dial(network, addr, time.Second)
			}}))(t)
		id := c.Session().ID
		time.Sleep(10 * time.Minute)
		idle := c.Session()
		must.That(t, idle.Connected, "an idle session is not connected")
		must.Equal(t, idle.ID, id, "an idle session: ID")
		link.Cut()
		time.Sleep(5 * time.Second)
		link.Mend()
		must.Get(c.Get(t.Context(), "/"))(t)
		got := c.Session().ID
		must.Equal(t, got, id, "session %x", got)
		link.Cut()
		time.Sleep(15 * time.Second)
		link.Mend()
		<-c.Over()
		is(t, c.Err(), zk.ErrSessionExpired)
		must.OK(t, c.Close(t.Context()))
	})
}

// silent() returns the address of a server that accepts connections and sends nothing but `text`.
func silent(t *testing.T, text string) string {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte(text))
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return ln.Addr().String()
}

// TestOneGoodServerIsEnough gives a Conn one good server, and others that refuse, are silent, do not exist,
// or speak another protocol.
func TestOneGoodServerIsEnough(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		others := []string{must.Refused(t), silent(t, ""), silent(t, "HTTP/1.1 400 Bad Request\r\n\r\n"),
			"no-such-host.invalid:1"}
		for range 10 {
			c := must.Get(zk.Dial(within(t), strings.Join(append(others, addr), ","), zk.Options{
				Timeout:      10 * time.Second,
				AttemptLimit: 300 * time.Millisecond}))(t)
			expect.Equal(t, c.Session().Server, addr, "connected to")
			must.OK(t, c.Close(within(t)))
		}
	})
}

// TestTroubleIsTold checks that a failed Dial names each server and its fault.
func TestTroubleIsTold(t *testing.T) {
	leak.Check(t)
	refused := must.Refused(t)
	web := silent(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	told := map[string]error{}
	_, err := zk.Dial(ctx, fmt.Sprintf("%s,%s", refused, web), zk.Options{AttemptLimit: patience,
		OnTrouble: func(server string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if told[server] = err; len(told) == 2 {
				cancel()
			}
		}})
	is(t, err, context.Canceled)
	for _, want := range []string{refused, "refused", web, "answers in HTTP"} {
		expect.Has(t, err.Error(), want, "is missing in: %v", err)
	}
}

func TestParseServers(t *testing.T) {
	for in, want := range map[string]string{
		"a":               "[a:2181] ",
		"a:1, b ,c:3/x/y": "[a:1 b:2181 c:3] /x/y",
		"[::1],[::2]:5/":  "[[::1]:2181 [::2]:5] ",
		"::1":             "[[::1]:2181] ",
		"":                "error",
		"/x":              "error",
		"a//x":            "error",
		"a/x/../y":        "error",
		"a/./y":           "error",
		"a/x/.":           "error",
		"a/..":            "error",
		"a/x\x00y":        "error",
		"a/":              "[a:2181] ",
		"a/x/":            "[a:2181] /x",
		",a,,b:1,":        "[a:2181 b:1] ",
		", /x":            "error",
		"a/.x/..y":        "[a:2181] /.x/..y",
	} {
		list, root, err := zk.ParseServers(in)
		got := fmt.Sprintf("%v %s", list, root)
		if err != nil {
			is(t, err, zk.ErrInvalid)
			got = "error"
		}
		expect.Equal(t, got, want, "%q", in)
	}
}

// A server that has lost its data refuses every session that has seen newer data. Once the session has also
// timed out by the client's clock, the Conn ends it, and the program can open another session.
func TestSessionEndsAtAServerThatLostItsData(t *testing.T) {
	leak.Check(t)
	config := zlocktest.Config{MinSessionTimeout: 400 * time.Millisecond}
	old, fresh := config.Start(t), config.Start(t)
	// An attempt may take long: the Conn opens another session and waits until the server has closed it.
	opt := zk.Options{Timeout: time.Second, AttemptLimit: patience}
	c, p := proxied(t, old.Addr, opt)
	for made := 0; made < 5; made++ {
		_, err := c.Create(within(t), zk.Create{Path: "/n-", Mode: zk.EphemeralSequential})
		if errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrConnectionLost) {
			// The machine was so slow that the session was lost. Begin again.
			c, p = proxied(t, old.Addr, opt)
			made = -1
			continue
		}
		must.OK(t, err)
	}
	before := c.Session()
	p.SetTarget(fresh.Addr)
	p.Cut()
	soon(t, "the end of the session", c.Over())
	is(t, c.Err(), zk.ErrSessionExpired)
	left := fresh.Sessions()
	expect.That(t, len(left) <= 0, "the question left sessions behind: %v", left)
	// As long as no server grants another session, the Conn keeps the old one, and asks for it again and
	// again.
	for {
		c, p = proxied(t, old.Addr, zk.Options{Timeout: before.Timeout})
		p.Blackhole(true)
		if p.Connections() == 1 {
			break
		}
		p.Blackhole(false) // it connected twice, so the server may have answered: begin again
	}
	p.Cut()
	select {
	case <-c.Over():
		t.Error("the session ended before a server said so")
	case <-time.After(3 * before.Timeout):
	}
	p.Blackhole(false)
}

// If a timeout is too long for the protocol, the Conn asks for the longest one, which the server then limits.
func TestLongTimeoutIsNotShort(t *testing.T) {
	leak.Check(t)
	s := zlocktest.Start(t)
	if c := dial(t, s.Addr, zk.Options{Timeout: 30 * 24 * time.Hour}); c.Session().Timeout != 40*time.Second {
		t.Errorf("asked for a month, granted %v, not the longest there is", c.Session().Timeout)
	}
}

// Before it dials, Open refuses options that cannot work.
func TestOpenRefusesWhatCannotBeUsed(t *testing.T) {
	for _, opt := range []zk.Options{{Timeout: -1}, {AttemptLimit: -1}, {MaxRequest: -1}} {
		_, err := zk.Open("127.0.0.1:1", opt)
		expect.Is(t, err, zk.ErrInvalid)
	}
	for _, servers := range []string{"", "zk://a:1", "a:1//x"} {
		_, err := zk.Dial(within(t), servers, zk.Options{})
		expect.Is(t, err, zk.ErrInvalid, "%q", servers)
	}
}

func TestConnDescribesItself(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		u := []zk.Auth{{Scheme: "digest", Secret: []byte("u:p")}}
		c, ctx := dial(t, addr+"/top", zk.Options{Auth: u}), within(t)
		expect.List(t, c.Servers(), []string{addr})
		expect.Equal(t, c.Chroot(), "/top")
		who := must.Get(c.WhoAmI(ctx))(t)
		expect.That(t, slices.Contains(who, zk.ID{Scheme: "digest", ID: "u"}), "identities %v", who)
		p := must.Get(faultproxy.New(addr))(t)
		t.Cleanup(p.Close)
		c = dial(t, p.Addr(), zk.Options{})
		hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Under: "/r", Do: faultproxy.Hold})
		sent := c.Pipe()
		reads := []*zk.Reply[*zk.Stat]{sent.Exists("/r"), sent.Exists("/r/a")}
		sent.Send()
		soon(t, "the answer", hold.Acted())
		expect.Equal(t, c.Pending(), 2, "requests under way")
		p.Refuse(true)
		p.Cut()
		eventually(t, "the connection to be lost", func() bool { return !c.Session().Connected })
		expect.Equal(t, c.Pending(), 2, "requests that wait for a connection")
		hold.Remove()
		p.Refuse(false)
		for _, r := range reads {
			must.Get(r.Wait(ctx))(t)
		}
		expect.Equal(t, c.Pending(), 0, "requests")
	})
}

// Every call returns the server's refusal.
func TestEveryCallTellsOfARefusal(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/r", "")
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Do: faultproxy.Refused, Code: -8,
			Match: func(f faultproxy.Frame) bool {
				return f.Op != faultproxy.OpPing && f.Op != faultproxy.OpConnect && f.Op != faultproxy.OpCloseSession
			}})
		for name, call := range map[string]func() error{
			"Create":        func() error { _, err := c.Create(ctx, zk.Create{Path: "/r/a"}); return err },
			"Get":           func() error { _, err := c.Get(ctx, "/r"); return err },
			"GetW":          func() error { _, _, err := c.GetW(ctx, "/r"); return err },
			"Exists":        func() error { _, err := c.Exists(ctx, "/r"); return err },
			"ExistsW":       func() error { _, _, err := c.ExistsW(ctx, "/r"); return err },
			"Children":      func() error { _, _, err := c.Children(ctx, "/r"); return err },
			"ChildrenW":     func() error { _, _, _, err := c.ChildrenW(ctx, "/r"); return err },
			"Names":         func() error { _, err := c.Names(ctx, "/r"); return err },
			"Set":           func() error { _, err := c.Set(ctx, "/r", nil, -1); return err },
			"Delete":        func() error { return c.Delete(ctx, "/r", -1) },
			"Sync":          func() error { return c.Sync(ctx, "/r") },
			"Confirm":       func() error { return c.Confirm(ctx) },
			"GetACL":        func() error { _, _, err := c.GetACL(ctx, "/r"); return err },
			"SetACL":        func() error { _, err := c.SetACL(ctx, "/r", zk.WorldACL(1), -1); return err },
			"ChildrenCount": func() error { _, err := c.ChildrenCount(ctx, "/r"); return err },
			"Ephemerals":    func() error { _, err := c.Ephemerals(ctx, "/r"); return err },
			"WhoAmI":        func() error { _, err := c.WhoAmI(ctx); return err },
			"Multi":         func() error { _, err := c.Multi(ctx, zk.Delete{Path: "/r", Version: -1}); return err },
			"MakePath":      func() error { return c.MakePath(ctx, "/r/b/c", zk.Persistent, nil) },
			"Subscribe":     func() error { _, err := c.Subscribe(ctx, "/r", false); return err },
			"RemoveWatches": func() error { return c.RemoveWatches(ctx, "/r") },
		} {
			err := call()
			must.Is(t, err, zk.ErrBadArguments, "%s", name)
			must.That(t, zk.IsRefusal(err),
				"%s: %v, %d watches: want zk.IsRefusal(err)", name, err, c.Watches())
			must.Equal(t, c.Watches(), 0, "%s: c.Watches()", name)
		}
		rule.Remove()
		lost := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSync, Nth: 1,
			Do: faultproxy.CutBefore})
		is(t, c.Confirm(ctx), zk.ErrConnectionLost) // Confirm is not repeated on the next connection
		soon(t, "the cut", lost.Acted())
		must.OK(t, c.Confirm(ctx))
	})
}

// Counters counts each request, and its bytes in both directions, as soon as the request is answered.
func TestTrafficIsCounted(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		var n zk.Counters
		c, p := proxied(t, addr, zk.Options{Counters: &n})
		ctx := within(t)
		must.Equal(t, n.Connections.Load(), 1, "connections")
		node(t, c, "/r", "")
		requests, sent, read := n.Requests.Load(), n.BytesSent.Load(), n.BytesRead.Load()
		must.Equal(t, requests, 1, "requests")
		data := make([]byte, 1000)
		must.Get(c.Set(ctx, "/r", data, -1))(t)
		must.That(t, n.BytesSent.Load() >= sent+1000, "%d bytes sent", n.BytesSent.Load())
		must.That(t, n.BytesRead.Load() > read && n.BytesRead.Load() < read+1000, "%d bytes", n.BytesRead.Load())
		must.Get(c.Get(ctx, "/r"))(t)
		must.That(t, n.BytesRead.Load() >= read+1000, "%d bytes read", n.BytesRead.Load())
		must.Equal(t, n.Requests.Load(), 3, "requests")
		_, w := must.Get2(c.GetW(ctx, "/r"))(t)
		must.Get(c.Set(ctx, "/r", nil, -1))(t)
		fired(t, w)
		must.Equal(t, n.Events.Load(), 1, "events")
		p.Cut()
		eventually(t, "another connection", func() bool { return n.Connections.Load() == 2 })
		must.OK(t, c.Await(ctx))
		must.OK(t, c.Trouble(), "trouble, while connected")
	})
}

// A server that takes sessions and drops their connections is not asked in a tight loop.
func TestServerThatDropsConnectionsIsAskedLessAndLess(t *testing.T) {
	leak.Check(t)
	taken := make(chan time.Time, 100)
	c := must.Get(zk.Open(answering(t, func(conn net.Conn) {
		if readRequest(conn) == nil {
			return
		}
		select {
		case taken <- time.Now():
		default:
		}
		conn.Write(granted)
	}), zk.Options{Timeout: 10 * time.Second}))(t)
	first := soon(t, "a connection", taken)
	var last time.Time
	for range 5 {
		last = soon(t, "another connection", taken)
	}
	// The first of the five comes at once, the others after 50, 100, 200 and 400 ms, or up to a quarter less.
	must.That(t, last.Sub(first) > 500*time.Millisecond, "six connections in %v", last.Sub(first))
	must.OK(t, c.Close(within(t)))
}
