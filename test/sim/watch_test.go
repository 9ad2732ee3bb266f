package sim

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// chain watches a node as a client library does: it reads and sets a watch, waits for the event, and reads
// again. It sets its watch again when it moves to another server.
type chain struct {
	c      *cluster
	w      *wire.Conn
	at     uint32
	host   string
	value  int
	events int
}

// run() returns when it has read the value `last`, or when `stop` is closed.
func (k *chain) run(last int, stop <-chan struct{}) {
	armed := int64(-1) // the zxid up to which the watch has seen changes
	for k.value != last {
		select {
		case <-stop:
			return
		default:
		}
		if k.w == nil && !k.move(&armed) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if armed < 0 {
			b, st, err := k.w.GetData("/n", true)
			if err != nil {
				k.drop()
				continue
			}
			v, _ := strconv.Atoi(string(b))
			if v < k.value {
				k.c.t.Errorf("G6: %s read %d after %d", k.host, v, k.value)
			}
			if n := len(k.w.Events); n > 0 {
				k.c.t.Errorf("G16: %s was told of %+v without a watch", k.host, k.w.Events)
			}
			k.value, armed = v, max(k.w.Zxid, st.Mzxid)
			continue
		}
		k.w.Timeout = time.Second
		f, err := k.w.Next()
		k.w.Timeout = 30 * time.Second
		switch {
		case err == nil && f.Event != nil:
			if f.Event.Type != jute.EventDataChanged || f.Event.Path != "/n" || f.Zxid >= 0 && f.Zxid <= armed {
				k.c.t.Errorf("G16: %s, which knew zxid %d, was told %+v of zxid %d", k.host, armed, *f.Event, f.Zxid)
			}
			k.events++
			armed = -1
		case err == nil: // the answer to the previous ping
		case isTimeout(err):
			if k.w.SendXid(jute.XidPing, jute.OpPing, nil) != nil {
				k.drop()
			}
		default:
			k.drop()
		}
	}
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (k *chain) drop() {
	k.w.Close()
	k.w = nil
}

var lastSessions sync.Map // the newest session of each chain, by host

// move() connects to the next server, continues the session there and sets the watch again.
func (k *chain) move(armed *int64) bool {
	k.at = k.at%3 + 1
	old, _ := lastSessions.Load(k.host)
	if old == nil {
		nc, err := k.c.dialTo(k.host, k.at)
		if err != nil {
			return false
		}
		w := wire.New(nc)
		w.Timeout = 5 * time.Second
		if w.Connect(wire.NewSession(20_000)) != nil {
			nc.Close()
			return false
		}
		k.w = w
	} else {
		w, err := k.c.attach(k.host, k.at, old.(*wire.Conn))
		if err != nil {
			return false
		}
		k.w = w
	}
	lastSessions.Store(k.host, k.w)
	if *armed < 0 {
		return true
	}
	if err := k.w.SetWatches(*armed, []string{"/n"}, nil, nil); err != nil {
		k.drop()
		return false
	}
	for _, e := range k.w.Events {
		if e.Type != jute.EventDataChanged {
			k.c.t.Errorf("G17: renewing the watch, %s was told %+v", k.host, e)
		}
		k.events++
		*armed = -1
	}
	k.w.Events = nil
	return true
}

// A client that waits for a change hears of it, while leaders die, servers get snapshots and clients move. No
// client polls, so a single missed event would end its chain.
func TestG15G16G17WatchersHearOfEveryChange(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 100, trailing: 64}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		lastSessions.Clear()
		w := c.client("c9", 1, 30*time.Second)
		must.Get(w.Create("/n", []byte("0"), 0))(t)
		const last = 400
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var chains []*chain
		for k := range 6 {
			ch := &chain{c: c, host: fmt.Sprintf("c%d", k), at: uint32(k % 3), value: -1}
			chains = append(chains, ch)
			wg.Go(func() { ch.run(last, stop) })
		}
		f := newFaults(c)
		for i := 1; i <= last; i++ {
			for done := false; !done; {
				if _, err := w.SetData("/n", strconv.AppendInt(nil, int64(i), 10), int32(i-1)); err == nil {
					done = true
				} else if again, err := c.attach("c9", 1+uint32(c.rng.IntN(3)), w); err == nil {
					w = again
					b, _, err := w.GetData("/n", false)
					done = err == nil && string(b) == strconv.Itoa(i)
				}
				time.Sleep(time.Duration(c.rng.IntN(50)) * time.Millisecond)
			}
			switch {
			case i%100 == 50:
				f.away(f.leaderOr(1), time.Second)
			case i%100 == 75:
				f.away(1+uint32(c.rng.IntN(3)), 10*time.Second) // the server returns and gets a snapshot
			case i%40 == 0:
				host := fmt.Sprintf("c%d", c.rng.IntN(6))
				for id := range c.ids() {
					c.net.Cut(hostName(id), host)
				}
				time.Sleep(2 * time.Second)
				c.net.Heal()
			}
		}
		f.wg.Wait()
		time.Sleep(40 * time.Second)
		close(stop)
		wg.Wait()
		for _, ch := range chains {
			expect.Equal(t, ch.value, last, "G17: value")
			expect.That(t, ch.events >= 20, "G17: %s stands at %d of %d after %d events", ch.host, ch.value, last,
				ch.events)
			t.Logf("%s: %d events", ch.host, ch.events)
			if ch.w != nil {
				ch.w.Close()
			}
		}
	})
}

// A client gets no event about a node that it may not read, neither at once nor after it has moved to another
// server.
func TestG18EventsRevealNothingUnreadable(t *testing.T) {
	quiet(t, func(t *testing.T, c *cluster) {
		owner, friend, stranger := c.client("c0", 1, 30*time.Second), c.client("c1", 2, 30*time.Second),
			c.client("c2", 3, 30*time.Second)
		must.OK(t, owner.Auth("digest", "u:secret"))
		must.OK(t, friend.Auth("digest", "u:secret"))
		watch := func(w *wire.Conn, path string, there bool) {
			t.Helper()
			_, err := w.Exists(path, true)
			if there != (err == nil) {
				t.Fatalf("exists %s: %v", path, err)
			}
			if there {
				must.Get2(w.Children(path, true))(t)
			}
		}
		must.Get(owner.Create("/open", nil, 0))(t)
		for _, w := range []*wire.Conn{friend, stranger} {
			must.OK(t, w.Sync("/"))
			watch(w, "/secret", false)
			must.OK(t, w.AddWatch("/secret", jute.AddWatchRecursive))
			watch(w, "/open", true)
		}
		private := []jute.ACL{{Perms: jute.PermAll, ID: jute.ID{Scheme: "auth"}}}
		must.Get(owner.CreateACL("/secret", []byte("x"), private, 0))(t)
		must.Get(owner.CreateACL("/secret/child", []byte("x"), private, 0))(t)
		must.Get(owner.SetData("/secret", []byte("y"), -1))(t)
		must.OK(t, owner.Delete("/secret/child", -1))
		must.OK(t, owner.Delete("/secret", -1))
		must.Get(owner.SetACL("/open", []jute.ACL{
			{Perms: jute.PermRead, ID: jute.ID{Scheme: "ip", ID: "10.9.9.9"}}}, -1))(t)
		time.Sleep(time.Second)
		for _, w := range []*wire.Conn{friend, stranger} {
			must.OK(t, w.Sync("/"))
		}
		if len(friend.Events) < 5 {
			t.Errorf("the client that may read was told only %+v", friend.Events)
		}
		if len(stranger.Events) > 0 {
			t.Errorf("G18: the client that may not read was told %+v", stranger.Events)
		}
		// The secret node is also made while the stranger moves to another server.
		zxid := stranger.Zxid
		must.Get(owner.CreateACL("/secret", []byte("x"), private, 0))(t)
		again := must.Get(c.attach("c2", 1, stranger))(t)
		must.OK(t, again.SetWatches2(zxid, nil, []string{"/secret"}, nil, nil, nil))
		must.OK(t, again.Ping())
		if len(again.Events) > 0 {
			t.Errorf("G18: renewing a watch revealed %+v", again.Events)
		}
	})
}
