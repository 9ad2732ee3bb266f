//go:build linux

package clients

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// asleep waits until n connections rest without a goroutine.
func (r *rig) asleep(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d connections at rest", n), func() bool { return r.parked() == n })
}

func TestRestingConnectionsNeedNoGoroutine(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: -1})
	r.client().Close()
	eventually(t, "no connection", func() bool { return r.status().Conns == 0 })
	before := runtime.NumGoroutine()
	const n = 100
	list := make([]*wire.Conn, n)
	for i := range list {
		list[i] = r.client()
		alive(t, list[i])
	}
	r.asleep(n)
	for range 3 {
		for _, c := range list {
			alive(t, c)
		}
	}
	r.asleep(n)
	eventually(t, "no goroutine for each", func() bool { return runtime.NumGoroutine() < before+n/2 })
	expect.Equal(t, r.status().Conns, n, "connections")
	for i, c := range list {
		create(t, c, fmt.Sprintf("/%d", i), "", jute.FlagEphemeral)
		alive(t, c)
	}
	r.asleep(n)
	for _, c := range list {
		c.Close()
	}
	eventually(t, "all have ended", func() bool { return r.status().Conns == 0 })
	expect.Equal(t, r.parked(), 0, "at rest at the end")
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// A resting connection gets events at once. Its pings may arrive in any number of pieces.
func TestRestingConnectionHearsOfChanges(t *testing.T) {
	r := newRig(t, options.Options{})
	c, other := r.client(), r.client()
	create(t, other, "/a", "", 0)
	for i := range 20 {
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
		alive(t, c)
		eventually(t, "rests", func() bool { return r.parked() >= 1 })
		call(t, other, jute.OK, jute.OpSetData, wire.SetData("/a", nil, -1))
		wantKinds(t, c, jute.EventDataChanged.String()+" /a")
		ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
		must.OK(t, c.WriteRaw(ping[:1+i%11]))
		r.asleep(0)
		must.OK(t, c.WriteRaw(ping[1+i%11:]))
		wantKinds(t, c, int(jute.XidPing))
		must.OK(t, c.WriteRaw(slices.Concat(ping, ping, ping)))
		wantKinds(t, c, int(jute.XidPing), int(jute.XidPing), int(jute.XidPing))
	}
}

// However a resting connection ends, everything that it held is freed.
func TestRestingConnectionsEnd(t *testing.T) {
	for name, end := range map[string]func(r *rig, c *wire.Conn){
		"closed by its client": func(r *rig, c *wire.Conn) { c.Close() },
		"closed behind a ping": func(r *rig, c *wire.Conn) {
			must.OK(r.t, c.WriteRaw(wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)))
			must.OK(r.t, c.Conn.(*net.TCPConn).CloseWrite())
		},
		"reset": func(r *rig, c *wire.Conn) {
			c.Conn.(*net.TCPConn).SetLinger(0)
			c.Close()
		},
		"moved": func(r *rig, c *wire.Conn) { r.attach(c.Session).Close() },
		"ended by another connection": func(r *rig, c *wire.Conn) {
			b := r.attach(c.Session)
			must.OK(r.t, b.CloseSession())
		},
		"not serving":        func(r *rig, c *wire.Conn) { r.srv.Serving(false) },
		"reset of the state": func(r *rig, c *wire.Conn) { r.srv.Reset() },
		"cut off from the leader": func(r *rig, c *wire.Conn) {
			r.valve.setCut(true)
			must.OK(r.t, c.WriteRaw(wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)))
		},
		"its outbox is full": func(r *rig, c *wire.Conn) {
			s := r.srv.conns.Of(c.Session.ID)
			s.Out().Ignore(r.srv.Options().MaxOutboxFrames)
			must.OK(r.t, c.WriteRaw(wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)))
			must.OK(r.t, c.Closed()) // the connection must end well before the session expires
		},
		"impossible frame": func(r *rig, c *wire.Conn) {
			must.OK(r.t, c.WriteRaw([]byte{255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
		},
		"unknown operation": func(r *rig, c *wire.Conn) { must.OK(r.t, c.SendXid(1, 1000, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options.Options{MinSessionTimeout: time.Second, MaxSessionTimeout: time.Hour})
			c := r.dial()
			timeout := int32(3_600_000) // the session does not expire during this test
			if name == "cut off from the leader" {
				timeout = 3000
			}
			must.OK(t, c.Connect(wire.NewSession(timeout)))
			alive(t, c)
			r.asleep(1)
			end(r, c)
			eventually(t, "ended", func() bool { return r.status().Conns == 0 && r.parked() == 0 })
			if name != "closed by its client" && name != "reset" {
				c.SetReadDeadline(time.Now().Add(30 * time.Second))
				io.Copy(io.Discard, c)
			}
		})
	}
}

// A session whose connection rests expires like any other, and the end of the connection tells the client.
func TestRestingConnectionsOfSilentClientsEnd(t *testing.T) {
	r := newRig(t, options.Options{MinSessionTimeout: 2 * time.Second})
	c := r.dial()
	must.OK(t, c.Connect(wire.NewSession(2000))) // long enough to rest, even on a busy machine
	alive(t, c)
	r.asleep(1)
	closedAfter(t, c)
	eventually(t, "ended", func() bool { return r.status().Conns == 0 })
	eventually(t, "its session ended", func() bool { return len(r.srv.conns.Observed.EndedSince(-1)) == 1 })
}

// Connections rest, wake, are woken and end at random moments. Each client gets every answer and every event.
func TestConnectionsRestAndWakeAtRandom(t *testing.T) {
	r := newRig(t, options.Options{MaxConnsPerAddr: -1})
	create(t, r.client(), "/d", "", 0)
	stop := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(uint64(i), 11))
		wg.Go(func() {
			for n := 0; time.Now().Before(stop) && !t.Failed(); n++ {
				restAndWake(t, r, rng, fmt.Sprintf("/d/%d-%d", i, n))
			}
		})
	}
	wg.Wait()
	eventually(t, "nothing left", func() bool {
		s := r.status()
		return s.Conns == 1 && s.AllWatches == 0 && s.Outstanding == 0 && r.parked() <= 1
	})
}

// restAndWake uses two sessions: the second changes the nodes that the first watches.
func restAndWake(t *testing.T, r *rig, rng *rand.Rand, path string) {
	c, other := r.client(), r.client()
	defer func() { c.Close() }()
	defer other.Close()
	create(t, other, path, "", 0)
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	for range 1 + rng.IntN(30) {
		switch rng.IntN(6) {
		case 0: // an event comes while the connection begins to rest
			call(t, c, jute.OK, jute.OpGetData, wire.PathWatch(path, true))
			must.OK(t, other.SendXid(1, jute.OpSetData, wire.SetData(path, nil, -1)))
			must.OK(t, c.WriteRaw(ping))
			event := jute.EventDataChanged.String() + " " + path
			got := kinds(t, c, 2)
			must.That(t, slices.Contains(got, any(event)),
				"%v: want slices.Contains(got, any(event))", got)
			must.That(t, slices.Contains(got, any(int(jute.XidPing))),
				"%v: want slices.Contains(got, any(int(jute.XidPing)))", got)
			wantKinds(t, other, 1)
		case 1: // a request directly after a ping
			must.OK(t, c.WriteRaw(ping))
			must.OK(t, c.SendXid(7, jute.OpExists, wire.PathWatch(path, false)))
			wantKinds(t, c, int(jute.XidPing), 7)
		case 2: // a ping in two pieces
			at := 1 + rng.IntN(len(ping)-1)
			must.OK(t, c.WriteRaw(ping[:at]))
			runtime.Gosched()
			must.OK(t, c.WriteRaw(ping[at:]))
			wantKinds(t, c, int(jute.XidPing))
		case 3: // the session moves away, perhaps while the old connection rests
			b := r.attach(c.Session)
			must.OK(t, c.Closed())
			c.Close()
			c = b
		case 4:
			call(t, c, jute.OK, jute.OpSetData, wire.SetData(path, []byte("x"), -1))
		default:
			alive(t, c)
		}
	}
	switch rng.IntN(3) {
	case 0:
		must.OK(t, c.CloseSession())
	case 1:
		must.OK(t, c.WriteRaw(ping))
		c.Close()
	}
}
