package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// backupOf returns the backup of a state.
func backupOf(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	snap := s.StartSnapshot(Position{7, 2})
	defer snap.Close()
	must.OK(t, snap.Write(&b, func(read func()) { read() }))
	return b.Bytes()
}

// bringer brings a backup to the state of a bench.
type bringer struct {
	*bench
	g Staging
}

func (b *bench) stage(backup []byte) *bringer {
	b.t.Helper()
	g := Staging{ID: 99, Origin: 1, Birth: b.birth, Size: int64(len(backup))}
	must.Equal(b.t, b.do(g.Open())[0].Code, jute.OK)
	return &bringer{b, g}
}

// pieces() brings the backup in pieces of `size` bytes, and returns the last outcome.
func (b *bringer) pieces(backup []byte, size int) (o Outcome) {
	b.t.Helper()
	for at := 0; at < len(backup) && o.Code == jute.OK; at += size {
		o = b.do(b.g.Piece(int64(at), backup[at:min(at+size, len(backup))]))[0]
	}
	return o
}

// older() returns a state with nodes, a third of which belong to a session, and its backup.
func older(t testing.TB, nodes int) (*bench, []byte) {
	b := newBench(t)
	s := b.session()
	for i := range nodes {
		b.do(create(s, fmt.Sprintf("/old%d", i), int32(i%3/2))) // every third is ephemeral
	}
	return b, backupOf(t, b.s)
}

func TestBackupTakesThePlaceOfTheState(t *testing.T) {
	old, backup := older(t, 300)
	for _, keep := range []bool{false, true} {
		for _, size := range []int{1, 1000, 1 << 20} {
			b := newBench(t)
			b.do(Request{Op: OpConfig, Body: []byte("server.1=h:1:2:participant")})
			mine := b.session()
			b.do(create(mine, "/mine", 1))
			before, digest := b.s.Zxid(), b.s.Digest()
			x := b.stage(backup)
			if o := x.pieces(backup, size); o.Code != jute.OK {
				t.Fatalf("piece: %+v %s", o, o.Reply)
			}
			_, there := b.s.tree.Get("/mine")
			must.That(t, there, "a node is gone before the restore")
			must.Equal(t, b.s.Zxid(), before, "zxid before the restore")
			must.Equal(t, b.s.Digest(), digest, "digest before the restore")
			must.Equal(t, b.got.replaced, 0, "replacements before the restore")
			o := b.do(x.g.Restore(keep))[0]
			said, err := ParseRestored(o.Reply)
			must.Equal(t, o.Code, jute.OK, "the restore: %+v", o)
			must.OK(t, err, "the reply of the restore")
			must.Equal(t, b.got.replaced, 1, "replacements of the state")
			must.Equal(t, len(b.got.zxids), 0, "events")
			z := b.s.Zxid()
			expect.That(t, z > max(before, old.s.Zxid())+Raised-1, "zxid 0x%x, after 0x%x and 0x%x before the restore",
				z, before, old.s.Zxid())
			expect.Equal(t, o.Zxid, z, "zxid of the outcome")
			_, there = b.s.tree.Get("/mine")
			expect.That(t, !there, "a node of the state before is there")
			// Both states count session ids from 1, so both have a session with this id. In the backup it
			// owns the ephemeral nodes, in the running cluster it owns none of them.
			want := Restored{Nodes: old.s.tree.Count() - 100, Ended: 1}
			if keep {
				want.Sessions, want.Ended = 1, 0
			}
			expect.Equal(t, said, want, "keep %v: said", keep)
			expect.Equal(t, b.s.tree.Count(), want.Nodes, "keep %v: b.s.tree.Count()", keep)
			expect.Equal(t, b.s.sessions.Len(), want.Sessions, "keep %v: b.s.sessions.Len()", keep)
			text, version := config.Cut(b.s.ConfigData())
			expect.Equal(t, text, "server.1=h:1:2:participant", "published members")
			expect.That(t, version > before, "version 0x%x of the members, and 0x%x before", version, before)
			birth, _, last := b.s.Stream(1)
			expect.Equal(t, birth, b.birth, "birth of the stream")
			expect.Equal(t, last+1, b.next, "next request of the stream")
			expect.Equal(t, b.s.ClusterID(), "test", "cluster")
			// A connection from before the restore is refused, even if its session continues. The ids of new
			// sessions are higher than those of all sessions before.
			if o := b.do(create(mine, "/late", 0))[0]; !o.Refused {
				t.Errorf("a write from before: %+v", o)
			}
			if s := b.session(); s.ID <= mine.ID {
				t.Errorf("session 0x%x behind 0x%x", s.ID, mine.ID)
			}
			_, _, open := b.s.Staged()
			expect.That(t, !open, "the place is still open")
		}
	}
}

func remove(s session.Session, path string) Request {
	body := jute.AppendInt(jute.AppendString(nil, path), -1)
	return Request{Session: s.ID, Gen: s.Gen, Op: jute.OpDelete, Body: body}
}

// If a session continues after a restore, it gets back its ephemeral nodes of the backup, except those that
// it has deleted since then. Its client knows of no others.
func TestKeptSessionHasNothingThatItReleased(t *testing.T) {
	b := newBench(t)
	s := b.session()
	for _, path := range []string{"/held", "/released", "/again"} {
		b.do(create(s, path, 1))
	}
	backup := backupOf(t, b.s)
	b.do(remove(s, "/released"))
	b.do(remove(s, "/again"))
	b.do(create(s, "/again", 1))
	x := b.stage(backup)
	x.pieces(backup, 100)
	o := b.do(x.g.Restore(true))[0]
	must.Equal(t, o.Code, jute.OK, "%+v %s", o, o.Reply)
	expect.List(t, b.s.tree.SomeEphemeralsOf(s.ID, 2), []string{"/held"}, "the session has")
	for _, path := range []string{"/released", "/again"} {
		_, there := b.s.tree.Get(path)
		expect.That(t, !there, "%s is there", path)
	}
}

// A session that has ended since the backup comes back with the restore. Requests that its last connection
// sent have no effect.
func TestWriteOfASessionThatEndedIsRefusedAfterItComesBack(t *testing.T) {
	b := newBench(t)
	b.s.Raise(1 << 40) // the zxid has risen, as it does with time
	s := b.session()
	backup := backupOf(t, b.s)
	body := SessionBody{Timeout: s.Timeout, Password: s.Password, Owner: 1}
	s = b.do(Request{Session: s.ID, Op: OpAttach, Body: body.Append(nil)})[0].Session
	b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCloseSession})
	x := b.stage(backup)
	x.pieces(backup, 1000)
	must.Equal(t, b.do(x.g.Restore(true))[0].Code, jute.OK)
	must.That(t, b.do(create(s, "/late", 0))[0].Refused, "a write of generation %d counts", s.Gen)
}

// The sessions of another cluster's backup may have released their locks since then. So a restore must not
// keep them.
func TestSessionsOfAnotherClusterAreNotKept(t *testing.T) {
	old, _ := older(t, 3)
	old.s.clusterID = "another"
	backup := backupOf(t, old.s)
	for _, keep := range []bool{true, false} {
		b := newBench(t)
		x := b.stage(backup)
		x.pieces(backup, 1000)
		zxid := b.s.Zxid()
		o := b.do(x.g.Restore(keep))[0]
		refused := o.Code != jute.OK
		expect.Equal(t, refused, keep, "keep %v: refused", keep)
		expect.Equal(t, refused, b.s.Zxid() == zxid, "keep %v: refused", keep)
		expect.That(t, b.s.staged == nil, "keep %v: the restore is still under way", keep)
	}
}

// A server that took part in a restore, and a server that reads a later snapshot, have the same state.
func TestRestoredStateIsTheSameEverywhere(t *testing.T) {
	_, backup := older(t, 100)
	for _, keep := range []bool{false, true} {
		var states []*State
		for range 2 {
			b := newBench(t)
			x := b.stage(backup)
			x.pieces(backup, 333)
			b.do(x.g.Restore(keep))
			states = append(states, b.s)
		}
		read, _ := must.Get2(ReadSnapshot(bytes.NewReader(backupOf(t, states[0]))))(t)
		for i, s := range append(states, read) {
			expect.Equal(t, s.Digest(), states[0].Digest(), "keep %v: digest of state %d", keep, i)
			expect.Equal(t, s.Zxid(), states[0].Zxid(), "keep %v: zxid of state %d", keep, i)
			expect.That(t, bytes.Equal(backupOf(t, s), backupOf(t, states[0])), "keep %v: the backup of state %d differs",
				keep, i)
		}
	}
}

// A damaged or incomplete backup is refused with a reason, and changes nothing.
func TestDamagedBackupIsGivenUp(t *testing.T) {
	_, backup := older(t, 60)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		bad := bytes.Clone(backup)
		switch at := r.IntN(len(bad)); r.IntN(3) {
		case 0:
			bad[at] ^= byte(1 + r.IntN(255))
		case 1:
			bad = bad[:at]
		default:
			bad = append(bad[:at:at], bad[min(len(bad), at+1+r.IntN(50)):]...)
		}
		if len(bad) == 0 {
			continue
		}
		b := newBench(t)
		digest := b.s.Digest()
		x := b.stage(bad)
		o := x.pieces(bad, 100)
		if o.Code == jute.OK {
			o = b.do(x.g.Restore(true))[0]
		}
		must.Equal(t, o.Code, jute.BadArguments, "the answer to a damaged backup")
		must.That(t, len(o.Reply) != 0, "the refusal gives no reason")
		must.Equal(t, b.s.Digest(), digest, "digest after the refusal")
		must.Equal(t, b.got.replaced, 0, "replacements of the state")
		_, _, open := b.s.Staged()
		must.That(t, !open, "the place is still open")
		must.Equal(t, b.do(x.g.Restore(true))[0].Code, jute.BadArguments, "the answer to a restore after the refusal")
		must.Equal(t, b.got.replaced, 0, "replacements of the state, after the second refusal")
	}
}

func TestPlaceForABackupIsGivenUp(t *testing.T) {
	_, backup := older(t, 20)
	for name, end := range map[string]func(x *bringer){
		"its server began anew":    func(x *bringer) { x.open(1, 78) },
		"its server was removed":   func(x *bringer) { x.do(Forget(1, 79)) },
		"it was told to":           func(x *bringer) { x.do(x.g.GiveUp()) },
		"a piece was left out":     func(x *bringer) { x.do(x.g.Piece(50, backup[50:60])) },
		"a piece came twice":       func(x *bringer) { x.do(x.g.Piece(0, backup[:10])) },
		"it is longer than it was": func(x *bringer) { x.do(x.g.Piece(10, append(backup[10:], 1))) },
		"it was not whole":         func(x *bringer) { x.do(x.g.Restore(false)) },
	} {
		b := newBench(t)
		x := b.stage(backup)
		must.Equal(t, b.do(x.g.Piece(0, backup[:10]))[0].Code, jute.OK)
		end(x)
		if _, _, open := b.s.Staged(); open {
			t.Errorf("%s: it is still open", name)
		}
	}
	// Neither another server's new stream nor its restore affects this restore.
	b := newBench(t)
	x := b.stage(backup)
	b.open(2, 5)
	other := Staging{ID: 100, Origin: 2, Birth: b.got.births[2], Size: 5}
	for _, r := range []Request{other.Piece(0, []byte("x")), other.Restore(false), other.GiveUp()} {
		o := b.do(r)[0]
		expect.Equal(t, o.Code, jute.BadArguments, "the answer to another server's restore")
		expect.Has(t, string(o.Reply), "abandoned")
	}
	o := b.do(other.Open())[0]
	expect.Equal(t, o.Code, Occupied, "o.Code")
	expect.Equal(t, string(o.Reply), "through server 1", "string(o.Reply)")
	g, _, open := b.s.Staged()
	expect.That(t, open, "the restore has ended")
	expect.Equal(t, g, x.g, "the restore that is under way")
	// A request of a stream that has ended does not open a staging area.
	b = newBench(t)
	late := Staging{ID: 1, Origin: 1, Birth: b.birth + 1, Size: 5}
	o = b.do(late.Open())[0]
	expect.Equal(t, o.Code, jute.BadArguments, "%+v %s", o, o.Reply)
	if _, _, open = b.s.Staged(); open {
		t.Error("a place that nobody can fill")
	}
}
