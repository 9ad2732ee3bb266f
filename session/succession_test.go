package session

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A table that succeeds another one gives out the ids that follow the other's ids. It raises the generations
// of sessions, so that it refuses requests from older connections.
func TestTableSucceedsAnother(t *testing.T) {
	old, now := NewTable(7), NewTable(9)
	for n := range byte(3) {
		old.Create(1000, password(n), 1, "old", 1)
	}
	var ids []int64
	old.All(func(s Session) { ids = append(ids, s.ID) })
	old.Attach(ids[0], password(0), 1000, 1, "old")
	old.Attach(ids[0], password(0), 1000, 1, "old")
	for i, gen := range []uint32{1, 8, 2} { // the first two sessions of `old`, and a session that `old` never had
		s := Session{ID: ids[i], Gen: gen, Timeout: 5, Owner: 2, Addr: "now"}
		if i == 2 {
			s.ID = 99
		}
		must.That(t, now.Adopt(s), "%d", i)
	}
	now.Succeed(old, 4, 0)
	for id, gen := range map[int64]uint32{ids[0]: 5, ids[1]: 9, 99: 5} {
		s, known := now.Get(id)
		expect.That(t, known, "%#x: %+v, want generation %d: want known", id, s, gen)
		expect.Equal(t, s.Gen, gen, "%#x: s.Gen", id)
		expect.Equal(t, s.Addr, "now", "%#x: s.Addr", id)
		expect.Equal(t, s.Timeout, 5, "%#x: s.Timeout", id)
		held := false
		now.All(func(all Session) { held = held || all == s })
		expect.That(t, held, "%#x is another in the list", id)
	}
	was, _ := old.Get(ids[0])
	expect.Equal(t, was.Gen, 3, "the old table has changed")
	now.Remove(ids[2])
	next, after := now.Create(1000, password(1), 1, "", 1), old.Create(1000, password(1), 1, "", 1)
	expect.Equal(t, next.ID, after.ID, "the next id")
	now = NewTable(0)
	must.That(t, now.Adopt(Session{ID: ids[0], Gen: 1}), "adopted")
	now.Succeed(old, 0, 0)
	s, _ := now.Get(ids[0])
	expect.Equal(t, s.Gen, 4, "the generation of an older table is higher")
	now.Renumber(0xff000005)
	expect.Equal(t, now.Create(1000, password(1), 1, "", 1).ID, int64(1)<<56|5<<32)
}

// Ended sessions stay in their list until they are many and more than half of the list.
func TestEndedSessionsStayUntilTheyAreTheLargerHalf(t *testing.T) {
	for _, x := range []struct{ n, ended, listed int }{
		{40, 32, 40}, {40, 33, 7}, {66, 33, 66}, {66, 34, 32}, {100, 50, 100}, {100, 51, 49}, {101, 50, 101}, {101, 51, 50},
	} {
		tab := NewTable(1)
		var ids []int64
		for range x.n {
			ids = append(ids, tab.Create(1000, password(1), 1, "", 1).ID)
		}
		for _, id := range ids[:x.ended] {
			must.That(t, tab.Remove(id), "%#x", id)
		}
		l := &tab.order[creator(ids[0])]
		if expect.Equal(t, len(l.ids), x.listed, "%d of %d have ended: len(l.ids)", x.ended, x.n) {
			if expect.Equal(t, len(l.live), x.listed,
				"%d of %d have ended: len(l.live)", x.ended, x.n) {
				expect.Equal(t, l.ended, x.listed-(x.n-x.ended),
					"%d of %d have ended: l.ended", x.ended, x.n)
			}
		}
		checkEnded(t, tab)
	}
}
