package sim

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// If a client writes after it has received the answer to an earlier write, the write takes effect after the
// earlier one, on any server. A read after a sync shows the write.
func TestG1G7AcknowledgedWritesAreSeenOnEveryServer(t *testing.T) {
	quietWith(t, settings{heartbeat: time.Second, latency: 10 * time.Millisecond, snapshot: 1 << 30,
		trailing: 10_240}, func(t *testing.T, c *cluster) {
		var at [4]*wire.Conn
		for id := range c.ids() {
			at[id] = c.client("c0", id, 30*time.Second)
		}
		must.Get(at[1].Create("/n", nil, 0))(t)
		last := int64(0)
		stale := 0
		for i := 0; i < 60 || stale == 0 && i < 3000; i++ { // repeat until a read without sync was stale
			from, to := at[1+i%3], at[1+(i/3)%3]
			st := must.Get(from.SetData("/n", strconv.AppendInt(nil, int64(i), 10), -1))(t)
			if st.Mzxid <= last {
				t.Errorf("G1: write %d has zxid %d, after one that was answered with %d", i, st.Mzxid, last)
			}
			last = st.Mzxid
			if b, _, err := to.GetData("/n", false); err != nil || string(b) != strconv.Itoa(i) {
				stale++ // a stale read without sync is allowed
			}
			must.OK(t, to.Sync("/n"))
			b, _, err := to.GetData("/n", false)
			expect.OK(t, err)
			expect.Equal(t, string(b), strconv.Itoa(i), "G7")
		}
		if stale == 0 {
			t.Error("no read was ever stale before its sync: the test shows nothing")
		}
	})
}

// A server answers the requests of one TCP segment in order. Each request sees the effects of the requests
// before it, also at a follower (F1, R14).
func TestG5F1R14RequestsOfAConnectionKeepTheirOrder(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		for id := range c.ids() {
			w := c.client("c0", id, 30*time.Second)
			for round := range 20 {
				path := fmt.Sprintf("/n%d-%d", id, round)
				var b []byte
				add := func(xid int32, op jute.OpCode, body wire.Body) { b = wire.AppendRequest(b, xid, op, body) }
				add(1, jute.OpCreate, wire.Create(path, []byte("a"), jute.WorldAnyone, 0))
				add(2, jute.OpGetData, wire.PathWatch(path, false))
				add(3, jute.OpSetData, wire.SetData(path, []byte("b"), 0))
				add(4, jute.OpGetData, wire.PathWatch(path, false))
				add(-2, jute.OpPing, nil)
				add(5, jute.OpDelete, wire.PathVersion(path, 1))
				add(6, jute.OpExists, wire.PathWatch(path, false))
				must.OK(t, w.WriteRaw(b))
				zxid := int64(0)
				for _, want := range []struct {
					xid  int32
					code jute.ErrCode
					data string
				}{{1, jute.OK, ""}, {2, jute.OK, "a"}, {3, jute.OK, ""}, {4, jute.OK, "b"}, {-2, jute.OK, ""},
					{5, jute.OK, ""}, {6, jute.NoNode, ""}} {
					f := must.Get(w.Next())(t)
					must.Equal(t, f.Xid, want.xid, "G5: xid")
					must.Equal(t, f.Code, want.code, "G5: code")
					must.That(t, f.Zxid >= zxid, "G5: reply %+v, want %+v at zxid %d or later", f, want, zxid)
					zxid = f.Zxid
					d := jute.NewDecoder(f.Body)
					if want.data != "" && string(d.Buffer()) != want.data {
						t.Errorf("G5: request %d does not see the write before it", want.xid)
					}
				}
			}
		}
	})
}

// A server that lags does not answer a client that has seen a newer state at another server.
func TestG6SessionIsNeverShownAnOlderState(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		w := c.client("c0", leader, 30*time.Second)
		must.Get(w.Create("/n", nil, 0))(t)
		time.Sleep(time.Second)
		f := faults{cluster: c}
		f.isolate(others[0])
		must.Get(w.SetData("/n", []byte("new"), -1))(t)
		refused, closed := 0, 0
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			switch again, err := c.attach("c0", others[0], w); {
			case errors.Is(err, wire.ErrRefused):
				refused++
			case err != nil:
				closed++
			default:
				b, _, err := again.GetData("/n", false)
				t.Errorf("G6: a server that was cut off answered %q, %v", b, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if refused > 0 {
			t.Errorf("G13: refused %d times", refused)
		}
		if closed == 0 {
			t.Error("G13: the server never closed the connection")
		}
		c.net.Heal()
		c.ready(others[0], 10*time.Second)
		again := must.Get(c.attach("c0", others[0], w))(t)
		b, _, err := again.GetData("/n", false)
		expect.OK(t, err)
		expect.Equal(t, string(b), "new", "G6")
	})
}

// A multi sets two nodes together. The nodes are equal at every zxid that any server shows a client, and a
// failed multi changes nothing.
func TestG8MultiIsSeenWholeOrNotAtAll(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		w := c.client("c0", 1, 30*time.Second)
		for _, path := range []string{"/a", "/b"} {
			must.Get(w.Create(path, []byte("0"), 0))(t)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		pairs := 0
		for id := range c.ids() {
			r := c.client("c1", id, 30*time.Second)
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					a, sa, err1 := r.GetData("/a", false)
					b, sb, err2 := r.GetData("/b", false)
					if err1 != nil || err2 != nil || sa.Mzxid == sb.Mzxid && string(a) != string(b) {
						t.Errorf("G8: server %d shows %q and %q, %v %v", id, a, b, err1, err2)
						return
					}
					if sa.Mzxid > sb.Mzxid {
						t.Errorf("G8: server %d shows /a of zxid %d and later /b of zxid %d", id, sa.Mzxid, sb.Mzxid)
					}
					mu.Lock()
					pairs++
					mu.Unlock()
				}
			})
		}
		set := func(path string, i int) wire.Op {
			return wire.Op{Type: jute.OpSetData, Body: wire.SetData(path, strconv.AppendInt(nil, int64(i), 10), -1)}
		}
		for i := range 300 {
			ops := []wire.Op{set("/a", i), set("/b", i)}
			if i%3 == 2 {
				ops = append(ops, wire.Op{Type: jute.OpDelete, Body: wire.PathVersion("/none", -1)})
			}
			must.Get(w.Multi(ops...))(t)
			b, _ := must.Get2(w.GetData("/a", false))(t)
			if got, _ := strconv.Atoi(string(b)); i%3 == 2 && got != i-1 {
				t.Errorf("G8: a multi that failed has set %d", got)
			}
		}
		close(stop)
		wg.Wait()
		if pairs < 300 {
			t.Errorf("only %d pairs read", pairs)
		}
	})
}

// A silent session ends after its timeout and not much later, under any leader. A session that pings does not
// end.
func TestG10G11SilentSessionsEndInTime(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		stop := make(chan struct{})
		defer close(stop)
		for id := range c.ids() {
			loud := c.client("c1", id, 6*time.Second)
			go ping(loud, 2*time.Second, stop)
			w := c.client("c0", id, 6*time.Second)
			must.Get(w.Create(fmt.Sprintf("/e%d", id), nil, jute.FlagEphemeral))(t)
			silent := time.Now()
			for {
				time.Sleep(20 * time.Millisecond)
				gone := false
				c.server(1 + id%3).Node().View(func(s *state.State) {
					_, known := s.Sessions().Get(w.Session.ID)
					gone = !known
				})
				if d := time.Since(silent); gone {
					if d < 6*time.Second || d > 7*time.Second {
						t.Errorf("G11: a session of 6 s on server %d ended after %v", id, d)
					}
					break
				} else if d > 12*time.Second {
					t.Fatalf("G11: a session of 6 s on server %d lives after %v", id, d)
				}
			}
			c.server(1 + id%3).Node().View(func(s *state.State) {
				if _, ok := s.Sessions().Get(loud.Session.ID); !ok {
					t.Errorf("G10: a session that pings server %d has ended", id)
				}
			})
		}
	})
}

// A server without a majority never answers that a session has expired: not for an expired session, nor for
// one that does not exist or that the server does not know. It closes the connection instead.
func TestG13ExpiredIsSaidOnlyByAMajority(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		leader, others := c.mustLead()
		f := faults{cluster: c}
		f.isolate(leader)
		time.Sleep(5 * time.Second)
		unknownHere := c.client("c0", others[0], 20*time.Second) // the leader, cut off, does not know this session
		never := &wire.Conn{Session: wire.Session{ID: 1<<56 | 99, Password: make([]byte, jute.PasswordSize),
			Timeout: 6000}}
		for _, w := range []*wire.Conn{unknownHere, never} {
			_, err := c.attach("c0", leader, w)
			expect.Fails(t, err)
			expect.That(t, !errors.Is(err, wire.ErrRefused), "G13: the former leader, which is cut off, answered %v",
				err)
		}
		if _, err := c.attach("c0", others[1], never); !errors.Is(err, wire.ErrRefused) {
			t.Errorf("G13: the majority answered %v to a session that never was", err)
		}
		if _, err := c.attach("c0", others[1], unknownHere); err != nil {
			t.Errorf("the majority answered %v to a session of its own", err)
		}
		// The leader has just been cut off and does not know it yet.
		c.net.Heal()
		c.ready(leader, 10*time.Second)
		leader, _ = c.mustLead()
		f.isolate(leader)
		_, err := c.attach("c0", leader, never)
		expect.Fails(t, err)
		expect.That(t, !errors.Is(err, wire.ErrRefused),
			"G13: a leader that does not know yet that it is cut off answered %v", err)
	})
}

// If a client sends a request just before its session's time is over, the session lives on, even if the
// leader hears of the request a little later.
func TestG10SessionHeardJustBeforeItsEndLives(t *testing.T) {
	quietWith(t, settings{heartbeat: time.Second, latency: 10 * time.Millisecond, snapshot: 1 << 30,
		trailing: 10_240}, func(t *testing.T, c *cluster) {
		_, followers := c.mustLead()
		w := c.client("c0", followers[0], 4*time.Second)
		for i := range 40 {
			time.Sleep(4*time.Second - 50*time.Millisecond) // the request takes up to 20 ms more on its way
			if _, err := w.Exists("/", false); err != nil {
				t.Fatalf("G10: round %d: %v", i, err)
			}
		}
		time.Sleep(time.Second)
		if err := w.Sync("/"); err != nil {
			t.Errorf("G10: %v", err)
		}
	})
}
