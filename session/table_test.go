package session

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func password(n byte) (p [jute.PasswordSize]byte) {
	p[0], p[15] = n, n
	return p
}

// Append appends the table as bytes.
func (t *Table) Append(b []byte) []byte { return t.Hold().Append(b) }

func TestIDsArePositiveAndNameTheirCreator(t *testing.T) {
	tab := NewTable(0xffabcdef)
	for _, c := range []struct {
		owner   uint32
		creator int64
	}{{0, 1}, {1, 1}, {3, 3}, {126, 126}, {127, 126}, {1 << 31, 126}} {
		s := tab.Create(4000, password(1), c.owner, "10.0.0.1", 7)
		expect.That(t, s.ID > 0,
			"owner %d: id %#x, want top byte %d: want s.ID > 0", c.owner, s.ID, c.creator)
		expect.Equal(t, s.ID>>56, c.creator, "owner %d: s.ID >> 56", c.owner)
		expect.Equal(t, s.ID>>32&0xffffff, 0xabcdef, "prefix")
		expect.Equal(t, s.Gen, 1, "created %+v: s.Gen", s)
		expect.Equal(t, s.Owner, c.owner, "created %+v: s.Owner", s)
		expect.Equal(t, s.Timeout, 4000, "created %+v: s.Timeout", s)
		expect.Equal(t, s.Created, 7, "created %+v: s.Created", s)
	}
}

func TestCounterCarriesIntoPrefix(t *testing.T) {
	tab := NewTable(5)
	tab.next |= 1<<32 - 1
	a := tab.Create(1, password(1), 1, "", 0)
	b := tab.Create(1, password(1), 1, "", 0)
	expect.Equal(t, a.ID, 1<<56|5<<32|0xffffffff, "id")
	expect.Equal(t, b.ID, 1<<56|6<<32, "id")
}

func TestIDsStayUniqueWhenTheCounterGoesRound(t *testing.T) {
	tab := NewTable(0xffffff)
	tab.next = 1<<56 - 2
	seen := map[int64]bool{}
	var last int64
	for i := range 200 {
		if i == 100 { // the counter reaches ids that are in use
			tab.next = 1<<56 - 2
		}
		s := tab.Create(1, password(1), 2, "", 0)
		must.That(t, !seen[s.ID], "id %#x given twice or not positive: want !seen[s.ID]", s.ID)
		must.That(t, s.ID > 0, "id %#x given twice or not positive: want s.ID > 0", s.ID)
		seen[s.ID] = true
		if i%3 == 0 {
			tab.Remove(s.ID)
			delete(seen, s.ID) // only because the test set the counter back
		}
		last = 0
		tab.All(func(s Session) {
			must.That(t, s.ID > last, "All: %#x after %#x", s.ID, last)
			last = s.ID
		})
		checkEnded(t, tab)
	}
}

// checkEnded counts the ended sessions whose ids the table still lists. By this number the table decides when
// a list shrinks.
func checkEnded(t *testing.T, tab *Table) {
	t.Helper()
	for c, l := range tab.order {
		ended := 0
		for at, s := range l.live {
			if s == nil {
				ended++
			} else {
				must.Equal(t, tab.byID[l.ids[at]], s, "session %#x", l.ids[at])
			}
		}
		must.Equal(t, l.ended, ended, "ended sessions of creator %d", c)
	}
}

// A session that ended may come back from a backup with the same id, any number of times.
func TestIDsThatEndAndComeBack(t *testing.T) {
	tab := NewTable(1)
	for round := range 10 {
		for i := range int64(40) {
			must.That(t, tab.Adopt(Session{ID: 1 + i}), "round %d: session %d", round, 1+i)
			checkEnded(t, tab)
		}
		for i := range int64(40) {
			if i%4 > 0 || round%2 > 0 { // the list gets shorter in each second round
				must.That(t, tab.Remove(1+i), "round %d: session %d", round, 1+i)
			}
			checkEnded(t, tab)
		}
		for i := range int64(40) {
			tab.Remove(1 + i)
		}
	}
}

func TestAttachNeedsThePassword(t *testing.T) {
	tab := NewTable(1)
	s := tab.Create(4000, password(1), 1, "a", 0)
	_, ok := tab.Attach(s.ID, password(2), 9000, 2, "b")
	expect.That(t, !ok, "wrong password accepted")
	_, ok = tab.Attach(s.ID+1, password(1), 9000, 2, "b")
	expect.That(t, !ok, "unknown session accepted")
	got, _ := tab.Get(s.ID)
	expect.Equal(t, got, s, "a refused attach changed %+v to", s)
	expect.That(t, !tab.Check(s.ID, password(2)),
		"Check is wrong: want !tab.Check(s.ID, password(2))")
	expect.That(t, !tab.Check(0, password(1)),
		"Check is wrong: want !tab.Check(0, password(1))")
	expect.That(t, tab.Check(s.ID, password(1)),
		"Check is wrong: want tab.Check(s.ID, password(1))")
}

func TestAttachMovesTheSession(t *testing.T) {
	tab := NewTable(1)
	s := tab.Create(4000, password(1), 1, "a", 5)
	got, ok := tab.Attach(s.ID, password(1), 9000, 2, "b")
	want := s
	want.Gen, want.Timeout, want.Owner, want.Addr = 2, 9000, 2, "b"
	expect.That(t, ok, "attached %+v %v, want %+v", got, ok, want)
	expect.Equal(t, got, want, "attached")
	stored, _ := tab.Get(s.ID)
	expect.Equal(t, stored, want, "stored %+v", stored)
}

func TestRemovedSessionIsUnknown(t *testing.T) {
	tab := NewTable(1)
	s := tab.Create(4000, password(1), 1, "a", 5)
	expect.That(t, tab.Remove(s.ID),
		"Remove must report the session once: want tab.Remove(s.ID)")
	expect.That(t, !tab.Remove(s.ID),
		"Remove must report the session once: want !tab.Remove(s.ID)")
	_, ok := tab.Get(s.ID)
	expect.That(t, !ok, "something is left of a removed session: want !ok")
	expect.That(t, !tab.Check(s.ID, password(1)),
		"something is left of a removed session: want !tab.Check(s.ID, password(1))")
	expect.Equal(t, tab.Len(), 0, "something is left of a removed session: tab.Len()")
}

// Random changes and snapshots leave a table equal to a map.
func TestTableAgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	tab, model := NewTable(77), map[int64]Session{}
	pick := func() int64 {
		for id := range model {
			return id
		}
		return 0
	}
	for step := range 20000 {
		timeout := int32(1000 * rnd.IntN(8))
		switch rnd.IntN(5) {
		case 0, 1:
			s := tab.Create(timeout, password(byte(step)), rnd.Uint32N(5), "addr", int64(step))
			if _, ok := model[s.ID]; ok {
				t.Fatalf("id %#x given twice", s.ID)
			}
			model[s.ID] = s
		case 2, 3:
			if id := pick(); tab.Remove(id) != (id != 0) {
				t.Fatalf("Remove(%#x)", id)
			} else {
				delete(model, id)
			}
		case 4:
			id := pick()
			want, known := model[id]
			got, ok := tab.Attach(id, want.Password, timeout, 9, "moved")
			want.Gen, want.Timeout, want.Owner, want.Addr = want.Gen+1, max(timeout, 1), 9, "moved"
			must.Equal(t, ok, known, "Attach %+v %v, want %+v: ok", got, ok, want)
			must.That(t, !known || got == want,
				"Attach %+v %v, want %+v: want !known || got == want", got, ok, want)
			if known {
				model[id] = want
			}
		}
		if step%500 == 0 {
			d := jute.NewDecoder(tab.Append(nil))
			loaded := new(Table)
			must.OK(t, loaded.Load(&d))
			tab = loaded
		}
		if step%100 != 0 {
			continue
		}
		n, last := 0, int64(0)
		tab.All(func(s Session) {
			must.Equal(t, s, model[s.ID],
				"All gives %+v after %#x, model has %+v: s", s, last, model[s.ID])
			must.That(t, s.ID > last,
				"All gives %+v after %#x, model has %+v: want s.ID > last", s, last, model[s.ID])
			last = s.ID
			n++
		})
		must.Equal(t, n, len(model))
		must.Equal(t, tab.Len(), n, "len")
	}
}

func filled(n int) *Table {
	tab := NewTable(9)
	for i := range n {
		tab.Create(int32(4000+i%3*1000), password(byte(i)), uint32(i%5+1), "192.168.100.200", int64(i))
	}
	return tab
}

func TestSnapshotIsIdentity(t *testing.T) {
	tab := filled(500)
	image := tab.Append(nil)
	d := jute.NewDecoder(append(slices.Clone(image), "tail"...))
	loaded := new(Table)
	must.OK(t, loaded.Load(&d))
	expect.Equal(t, string(d.Rest()), "tail", "Load must leave what follows the table")
	expect.List(t, loaded.Append(nil), image, "a loaded table encodes differently")
	a, b := tab.Create(1, password(1), 1, "", 0), loaded.Create(1, password(1), 1, "", 0)
	expect.Equal(t, a.ID, b.ID, "next id %#x became", a.ID)
}

func TestLoadRefusesDamage(t *testing.T) {
	image := filled(3).Append(nil)
	before := filled(1)
	keep := before.Append(nil)
	refuse := func(name string, b []byte) {
		t.Helper()
		d := jute.NewDecoder(b)
		expect.That(t, before.Load(&d) != nil, "%s: loaded", name)
		expect.List(t, before.Append(nil), keep, "%s: the table changed", name)
	}
	for n := range image {
		refuse("cut short", image[:n])
	}
	edit := func(name string, at int, v byte) {
		b := slices.Clone(image)
		b[at] = v
		refuse(name, b)
	}
	edit("negative count", 8, 0x80)
	edit("huge count", 8, 0x7f)
	edit("one session too many", 15, 4)
	edit("id with the top bit", 16, 0x80)
	edit("ids that fall", 16, 3) // the second id then belongs to another creator, and is lower than the first
	edit("negative timeout", 40, 0x80)
	edit("negative address length", 52, 0x90)
	edit("generation 0", 47, 0)
}

func FuzzLoad(f *testing.F) {
	f.Add(filled(3).Append(nil))
	f.Add(NewTable(1).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, tab := jute.NewDecoder(b), new(Table)
		if tab.Load(&d) != nil {
			return
		}
		if got := tab.Append(nil); !bytes.Equal(got, b[:d.Offset()]) {
			t.Errorf("loaded %x, encodes to %x", b[:d.Offset()], got)
		}
		tab.Create(1, password(1), 1, "", 0)
		tab.All(func(s Session) { tab.Get(s.ID) })
	})
}

func TestTenThousandSessionsAreCheap(t *testing.T) {
	const n = 10000
	image := filled(n).Append(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d, tab := jute.NewDecoder(image), new(Table)
	must.OK(t, tab.Load(&d))
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d bytes a session", each)
	expect.That(t, each <= 1024, "%d bytes a session", each)
	runtime.KeepAlive(tab)
	runtime.KeepAlive(image)
}

// A table accepts sessions with ids that no zlockd assigns: their top byte is 0, or 200 and more.
func TestAdoptedSessions(t *testing.T) {
	tab := NewTable(1)
	own := tab.Create(1000, password(1), 1, "", 0)
	ids := []int64{-0x37fffffffffffff0, 5, -1, 0x100000000000001}
	for _, id := range ids {
		expect.That(t, tab.Adopt(Session{ID: id, Password: password(9), Timeout: 4000}),
			"%#x not adopted", uint64(id))
	}
	expect.That(t, !tab.Adopt(Session{ID: 5}),
		"a session with the id 0 or with an id in use was adopted: want !tab.Adopt(Session{ID: 5})")
	expect.That(t, !tab.Adopt(Session{}),
		"a session with the id 0 or with an id in use was adopted: want !tab.Adopt(Session{})")
	var loaded Table
	d := jute.NewDecoder(tab.Append(nil))
	must.OK(t, loaded.Load(&d))
	for _, id := range ids {
		s, ok := loaded.Attach(id, password(9), 4000, 1, "a")
		expect.That(t, ok, "%#x cannot be attached to", uint64(id))
		expect.Equal(t, s.Gen, 2, "gen")
		expect.That(t, loaded.Remove(id), "%#x cannot be ended", uint64(id))
	}
	_, ok := loaded.Get(own.ID)
	if expect.That(t, ok, "the table's own session is gone: want ok") {
		expect.Equal(t, loaded.Len(), 1, "the table's own session is gone: loaded.Len()")
	}
}

// From goes through all sessions in pieces, and leaves out sessions that have ended.
func TestFromGoesThroughAllInPieces(t *testing.T) {
	tab := NewTable(7)
	var all []int64
	for i := range 300 {
		all = append(all, tab.Create(1000, [jute.PasswordSize]byte{}, uint32(1+i%3), "", 0).ID)
	}
	for i, id := range all {
		if i%5 == 0 {
			tab.Remove(id)
		}
	}
	for top := range 256 { // ids as the servers of a ZooKeeper give them
		must.That(t, tab.Adopt(Session{ID: int64(top)<<counterBits | 1<<40}), "adopt")
	}
	var want, got []int64
	tab.All(func(s Session) { want = append(want, s.ID) })
	for after := int64(0); ; {
		n := len(got)
		tab.From(after, 7, func(s Session) { got = append(got, s.ID) })
		if len(got) == n {
			break
		}
		must.That(t, len(got)-n <= 7, "%d at once", len(got)-n)
		after = got[len(got)-1]
	}
	expect.List(t, got, want, "%d of %d: got", len(got), len(want))
	expect.Equal(t, len(got), 240+256, "%d of %d: len(got)", len(got), len(want))
}

// A table drops the ids of ended sessions, except for a few, and lists none of them.
func TestEndedIDsAreForgotten(t *testing.T) {
	tab := NewTable(1)
	var ids []int64
	for range 10_000 {
		ids = append(ids, tab.Create(4000, password(1), 1, "", 0).ID)
	}
	for i, id := range ids {
		if i%100 != 0 {
			tab.Remove(id)
		}
	}
	kept := &tab.order[creator(ids[0])]
	if expect.That(t, len(kept.ids) <= 250,
		"100 sessions are left, and %d ids with room for %d: want len(kept.ids) <= 250",
		len(kept.ids), cap(kept.ids)) {
		expect.That(t, cap(kept.ids) <= 500,
			"100 sessions are left, and %d ids with room for %d: want cap(kept.ids) <= 500",
			len(kept.ids), cap(kept.ids))
	}
	n := 0
	tab.All(func(Session) { n++ })
	tab.From(0, 1000, func(Session) { n++ })
	expect.Equal(t, n, 200, "listed %d times", n)
}

// TestOwnedBy checks the number of sessions of each server after each kind of event, and after a snapshot.
func TestOwnedBy(t *testing.T) {
	tab := NewTable(1)
	want := func(one, two int) {
		t.Helper()
		a, b := tab.OwnedBy(1), tab.OwnedBy(2)
		expect.Equal(t, a, one, "sessions of a server")
		expect.Equal(t, b, two, "sessions of a server")
	}
	a := tab.Create(1000, [jute.PasswordSize]byte{1}, 1, "", 0)
	b := tab.Create(1000, [jute.PasswordSize]byte{2}, 1, "", 0)
	want(2, 0)
	tab.Attach(a.ID, a.Password, 1000, 2, "")
	want(1, 1)
	tab.Attach(a.ID, b.Password, 1000, 1, "") // a refused password
	tab.Attach(a.ID, a.Password, 1000, 2, "") // a new connection to the same server
	want(1, 1)
	saved := tab.Append(nil)
	tab = NewTable(2)
	d := jute.NewDecoder(saved)
	must.OK(t, tab.Load(&d))
	want(1, 1)
	tab.Remove(b.ID)
	tab.Remove(b.ID)
	want(0, 1)
	tab.Remove(a.ID)
	want(0, 0)
}

// TestOf checks the number of sessions of each address after each kind of event.
func TestOf(t *testing.T) {
	tab := NewTable(1)
	want := func(a, b int) {
		t.Helper()
		expect.Equal(t, tab.Of("a"), a, "sessions from a")
		expect.Equal(t, tab.Of("b"), b, "sessions from b")
	}
	one := tab.Create(1000, [jute.PasswordSize]byte{1}, 1, "a", 0)
	two := tab.Create(1000, [jute.PasswordSize]byte{2}, 1, "a", 0)
	want(2, 0)
	tab.Attach(one.ID, two.Password, 1000, 1, "b") // a refused password
	tab.Attach(two.ID, two.Password, 1000, 1, "a") // a new connection from the same address
	want(2, 0)
	tab.Attach(one.ID, one.Password, 1000, 1, "b")
	want(1, 1)
	tab.Adopt(Session{ID: 7, Addr: "b"})
	want(1, 2)
	saved := tab.Append(nil)
	tab = NewTable(2)
	d := jute.NewDecoder(saved)
	must.OK(t, tab.Load(&d))
	want(1, 2)
	tab.Remove(two.ID)
	tab.Remove(two.ID)
	want(0, 2)
	tab.Remove(one.ID)
	tab.Remove(7)
	want(0, 0)
}

// Held encodes the table as it was at the call of Hold, while sessions begin, move and end.
func TestWhatIsHeldStaysAsItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	tab := NewTable(7)
	var ids []int64
	step := func() {
		switch n := r.IntN(10); {
		case n < 5 || len(ids) == 0:
			ids = append(ids, tab.Create(1000, password(1), uint32(r.IntN(5)), "10.0.0.1", 7).ID)
		case n < 7:
			s := Session{ID: r.Int64N(1 << 57), Timeout: 1, Gen: 1}
			if tab.Adopt(s) {
				ids = append(ids, s.ID)
			}
		case n < 8:
			tab.Attach(ids[r.IntN(len(ids))], password(1), int32(r.IntN(100)), uint32(r.IntN(5)), "10.0.0.2")
		default:
			at := r.IntN(len(ids))
			tab.Remove(ids[at])
			ids = slices.Delete(ids, at, at+1)
		}
	}
	for range 100 {
		for range r.IntN(50) {
			step()
		}
		held, want := tab.Hold(), tab.Append(nil)
		for range r.IntN(100) {
			step()
		}
		if r.IntN(20) == 0 {
			tab.Succeed(NewTable(1), 0, 0)
		}
		must.List(t, held.Append(nil), want, "what was held has changed")
		again := NewTable(0)
		d := jute.NewDecoder(want)
		err := again.Load(&d)
		must.OK(t, err, "the table that was read differs")
		must.That(t, bytes.Equal(again.Append(nil), want),
			"the table that was read differs: %v: want bytes.Equal(again.Append(nil), want)", err)
	}
}
