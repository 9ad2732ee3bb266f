package clients

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// TestEachHandoffIsCountedOnce: what was under way when the client was told,
// and what is about something else, does not hide that it comes back later.
func TestEachHandoffIsCountedOnce(t *testing.T) {
	virtual(t, Options{}, func(t *testing.T, r *rig, ln *pipeListener) {
		open := func() *wire.Conn {
			c := ln.dial(t)
			must(t, c.Connect(wire.NewSession(30000)))
			return c
		}
		waiter, holder := open(), open()
		dirs := []string{"/app", "/app/a", "/app/b", "/app/c", "/app/d"}
		for _, path := range dirs {
			create(t, holder, path, "", 0)
		}
		for _, dir := range dirs[1:] {
			create(t, holder, dir+"/n-1", "", 0)
			if _, err := waiter.Exists(dir+"/n-1", true); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range dirs[1:] {
			must(t, holder.Delete(dir+"/n-1", -1))
		}
		count := func(after string, want int64) {
			t.Helper()
			if got := r.srv.Handoffs()["/app"]; got.Count != want || got.Time != time.Duration(want)*10*time.Millisecond {
				t.Errorf("after %s: %d hand-offs in %v, not %d of 10ms", after, got.Count, got.Time, want)
			}
		}
		look := func(path string) {
			t.Helper()
			if _, _, err := waiter.Children(path, false); err != nil {
				t.Fatal(err)
			}
		}
		look("/app/a") // at the very moment: it was sent before
		count("a read that was under way", 0)
		time.Sleep(10 * time.Millisecond)
		look("/app")
		must(t, waiter.Ping())
		count("what is about something else", 0)
		look("/app/a")
		count("a list", 1)
		look("/app/a")
		count("another list", 1)
		if _, err := waiter.Create("/app/b/n-2", nil, 0); err != nil {
			t.Fatal(err)
		}
		count("a write", 2)
		call(t, waiter, jute.OK, jute.OpMulti, wire.Multi(wire.Op{Type: jute.OpCreate, Body: wire.Create("/app/c/n-2", nil, jute.WorldAnyone, 0)}))
		count("a transaction", 3)
		must(t, waiter.AddWatch("/app/d", jute.AddWatchPersistent))
		count("a watch", 4)
	})
}

func TestTellingsOfOneConnectionAreBounded(t *testing.T) {
	var s connStat
	for i := range 2 * maxTold {
		s.tell(time.Duration(i), "/a")
	}
	if len(s.told) != maxTold || s.told[0].at != maxTold {
		t.Errorf("%d, from %d", len(s.told), s.told[0].at)
	}
}
