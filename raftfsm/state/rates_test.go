package state

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/state/window"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

var ofNoSecret uint64

// drawOf returns a draw with a secret of one byte. If `secret` is 0, the draw gets a secret of its own.
func drawOf(limit, per int64, secret byte) *Draw {
	d := &Draw{Path: "/api/calls", Ask: window.Ask{Limit: limit, Per: per, Hash: [8]byte{secret}}, Identity: "sasl:ci",
		RateBounds: RateBounds{100, 100}}
	if secret == 0 {
		ofNoSecret++
		d.Hash = [8]byte(jute.AppendLong(nil, int64(ofNoSecret)))
	}
	return d
}

func (b *ticketBench) draw(d *Draw) window.Drawn {
	b.t.Helper()
	out := b.do(d.Request(testIDs))[0]
	must.Equal(b.t, out.Code, jute.OK, "the code of a draw")
	return must.Get(window.ReadDrawn(out.Reply))(b.t)
}

// A draw is granted if fewer draws than the limit were granted within the period before it. A refusal says
// when the next draw is possible. A repeated draw counts once.
func TestDraws(t *testing.T) {
	b := newTicketBench(t)
	for n := range int64(3) {
		b.now = 1000 + 100*n
		expect.Equal(t, b.draw(drawOf(3, 1000, byte(n+1))), window.Drawn{OK: true, At: b.now, Left: 2 - n})
	}
	info, _ := b.s.Tree().Get("/api/calls")
	expect.Equal(t, info.Kind, tree.TTLNode, "the kind of the node")
	zxid := b.s.Zxid()
	expect.Equal(t, b.draw(drawOf(3, 1000, 9)), window.Drawn{Wait: 800}, "beyond the limit")
	expect.Equal(t, b.draw(drawOf(3, 1000, 2)), window.Drawn{OK: true, Told: true, At: 1100},
		"a draw that comes again")
	expect.Equal(t, b.s.Zxid(), zxid, "the zxid after draws that change nothing")
	expect.Equal(t, b.draw(drawOf(5, 1000, 0)).Left, 1, "by a higher limit")
	node, _ := b.s.Tree().Find("/api/calls")
	data, _ := node.Data(acl.Super)
	for _, c := range []struct {
		limit, per, now int64
		want            window.Use
		code            jute.ErrCode
	}{
		{0, 0, 1250, window.Use{Per: 1000, Used: 4, Wait: 0}, jute.OK}, {3, 0, 1250, window.Use{Per: 1000, Used: 4, Wait: 850}, jute.OK},
		{4, 1000, 1250, window.Use{Per: 1000, Used: 4, Wait: 750}, jute.OK}, {5, 1000, 1250, window.Use{Per: 1000, Used: 4, Wait: 0}, jute.OK},
		{1, 100, 1250, window.Use{Per: 100, Used: 2, Wait: 50}, jute.OK}, {1, 100, 1300, window.Use{Per: 100}, jute.OK},
		{1, 100, 1100, window.Use{Per: 100, Used: 2, Wait: 200}, jute.OK}, {1, 1001, 1250, window.Use{}, jute.BadVersion},
	} {
		use, code := window.UseOf(data, c.limit, c.per, c.now)
		expect.Equal(t, use, c.want, "use by %d in %d at %d", c.limit, c.per, c.now)
		expect.Equal(t, code, c.code, "the code by %d in %d", c.limit, c.per)
	}
	_, code := window.UseOf("words", 0, 0, 1250)
	expect.Equal(t, code, jute.BadArguments)
	b.now = 1999
	expect.Equal(t, b.draw(drawOf(4, 1000, 0)), window.Drawn{Wait: 1}, "a moment too early")
	b.now = 2000
	expect.Equal(t, b.draw(drawOf(4, 1000, 0)), window.Drawn{OK: true, At: 2000}, "in time")
	expect.Equal(t, b.draw(drawOf(2, 500, 0)), window.Drawn{OK: true, At: 2000}, "by a shorter time")
	b.now = 1500
	expect.Equal(t, b.draw(drawOf(9, 1000, 0)).At, 2000, "the time of a draw when the clock is set back")
	expect.Equal(t, b.draw(drawOf(2, 1000, 0)).Wait, 1500, "the wait when the clock is set back")
	expect.Equal(t, b.do(drawOf(2, 1001, 0).Request(testIDs))[0].Code, jute.BadVersion, "by a longer time")
	b.now = 61_999 // until 62_000 the node must stay, because a draw of 2000 is remembered for 60 s
	reap := Request{Op: OpReap, Body: []byte("/api/calls")}
	b.do(reap)
	_, there := b.s.Tree().Get("/api/calls")
	expect.That(t, there, "the node is gone while its draws are remembered")
	b.now++
	b.do(reap)
	_, there = b.s.Tree().Get("/api/calls")
	expect.That(t, !there, "the node stays when nothing in it counts")
}

// A draw needs the right to write its node, even if the rate would refuse the draw. A draw is refused if the
// data of its node do not have the form of a rate.
func TestDrawsThatCannotBe(t *testing.T) {
	b := newTicketBench(t)
	s := b.session()
	node := func(path string, data string, id jute.ID) {
		acl := []jute.ACL{{Perms: jute.PermAll, ID: id}}
		body := jute.AppendBuffer(jute.AppendString(nil, path), []byte(data))
		body = jute.AppendInt(jute.AppendACL(body, acl), 0)
		r := Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, IDs: testIDs, Body: body}
		must.Equal(t, b.do(r)[0].Code, jute.OK)
	}
	ci := jute.ID{Scheme: "sasl", ID: "ci"}
	node("/ci", "", ci)
	node("/ci/full", "", ci)
	node("/other", "words", jute.WorldAnyone[0].ID)
	full := drawOf(1, 1000, 0)
	full.Path = "/ci/full"
	b.draw(full)
	info, _ := b.s.Tree().Get("/ci/full")
	expect.Equal(t, info.Kind, tree.PlainNode, "the kind of a node that was there")
	ticket := b.do(openingOf(1, "/lock").Open(testIDs))[0].Session
	contender := b.s.Tree().SomeEphemeralsOf(ticket.ID, 1)[0]
	for path, want := range map[string]jute.ErrCode{"/ci/full": jute.NoAuth, "/ci/new": jute.NoAuth,
		"/other": jute.BadArguments, "/other/": jute.BadArguments, "/lock": jute.BadArguments,
		contender: jute.BadArguments} {
		d := drawOf(1, 1000, 0)
		d.Path = path
		digest := b.s.Digest()
		out := b.do(d.Request([]jute.ID{{Scheme: "ip", ID: "10.0.0.9"}}))[0]
		expect.Equal(t, out.Code, want, "a draw from %s", path)
		expect.Equal(t, b.s.Digest(), digest, "the digest after a draw from %s", path)
	}
	old := newBench(t)
	expect.Equal(t, old.do(drawOf(1, 1000, 0).Request(testIDs))[0].Code, jute.Unimplemented,
		"where servers may not know it")
	d := drawOf(1, 1000, 0)
	d.Path = "/plain"
	entry := b.entry(b.next, d.Request(testIDs))
	entry[1] |= entries.NoTTL
	entries.Seal(entry, b.now)
	must.OK(t, b.s.Apply(entry, &b.got))
	info, _ = b.s.Tree().Get("/plain")
	expect.Equal(t, info.Kind, tree.PlainNode, "the kind of a node where none has a time to live")
}

// The cluster limits how many nodes the draws of an identity may create, including directories. A node counts
// until it is removed, even after a restart or a restore. If a draw is refused, or its node exists already,
// nothing is counted.
func TestRatesOfAnIdentityAreBounded(t *testing.T) {
	b := newTicketBench(t)
	draw := func(path, identity string) Outcome {
		d := drawOf(9, 1000, 0)
		d.Path, d.Identity, d.RateBounds = path, identity, RateBounds{9, 5}
		return b.do(d.Request(testIDs))[0]
	}
	expects := func(want jute.ErrCode, identity string, paths ...string) (text string) {
		t.Helper()
		for _, path := range paths {
			zxid, nodes := b.s.Zxid(), b.s.Tree().Count()
			o := draw(path, identity)
			expect.Equal(t, o.Code, want, "a draw of %s from %s: %s", identity, path, o.Reply)
			if text = string(o.Reply); want != jute.OK {
				expect.Equal(t, b.s.Zxid(), zxid, "the zxid after a refused draw")
				expect.Equal(t, b.s.Tree().Count(), nodes, "nodes after a refused draw")
			}
		}
		return text
	}
	s := b.session()
	empty := jute.AppendBuffer(jute.AppendString(nil, "/there"), nil)
	empty = jute.AppendInt(jute.AppendACL(empty, jute.WorldAnyone), 0)
	b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: empty})
	// These draws create 5 nodes, of which some are directories.
	expects(jute.OK, "ci", "/there", "/a/b", "/a/c", "/a/d", "/a/b", "/a/b/e")
	expect.Has(t, expects(jute.QuotaExceeded, "ci", "/a/f", "/f"), "of this identity have 5 nodes")
	expects(jute.OK, "ci", "/a/b", "/there")
	expects(jute.OK, "other", "/a/f", "/g/h")
	expect.Has(t, expects(jute.QuotaExceeded, "other", "/i/j"), "of the cluster have 8 nodes")
	expects(jute.OK, "other", "/i")
	expects(jute.QuotaExceeded, "third", "/j")
	remove := func(path string) {
		t.Helper()
		body := jute.AppendInt(jute.AppendString(nil, path), -1)
		o := b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpDelete, Body: body})[0]
		must.Equal(t, o.Code, jute.OK, "the removal of %s", path)
	}
	backup := backupOf(t, b.s)
	remove("/a/d") // as a client does
	expects(jute.OK, "ci", "/a/k")
	expects(jute.QuotaExceeded, "ci", "/a/l")
	b.s = reloaded(t, b.s)
	expects(jute.QuotaExceeded, "ci", "/a/l")
	b.now += 61_002 // now the time to live of the nodes is over
	for _, path := range []string{"/a/b/e", "/a/b", "/a/c", "/a/f", "/a/k", "/g/h", "/i"} {
		b.do(Request{Op: OpReap, Body: []byte(path)})
	}
	expect.Equal(t, len(b.s.begun.by)+len(b.s.begun.of)+int(b.s.begun.all), 0, "what is left: %+v", b.s.begun)
	expects(jute.OK, "ci", "/m/n/o/p/q")
	expects(jute.QuotaExceeded, "ci", "/r")
	g := b.stage(backup)
	g.pieces(backup, 1<<20)
	must.Equal(t, b.do(g.g.Restore(false))[0].Code, jute.OK)
	s = b.session()
	expects(jute.QuotaExceeded, "ci", "/a/l") // after the restore, the counts of the backup are in force
	remove("/a/d")
	expects(jute.OK, "ci", "/a/l")
}

var drawsOfK12 = flag.Int("rates.draws", 30_000, "how many draws are asked for in TestK12NoWindowHasMoreDraws")

// K12: in no period does a rate grant more draws than its limit. By the cluster's clock this always holds. By
// the true clock it holds unless a leader's clock is set forward. A rate with a limit up to 256 grants each
// draw for which there is room, and a larger one nearly each.
func TestK12NoWindowHasMoreDraws(t *testing.T) {
	for _, c := range []struct{ limit, per int64 }{{1, 1000}, {5, 4000}, {100, 60_000}, {256, 1000},
		{300, 1000}, {2000, 60_000}, {1000, 1000}} {
		for _, forward := range []bool{false, true} {
			t.Run(fmt.Sprint(c.limit, " in ", c.per, " ms, forward ", forward), func(t *testing.T) {
				drawUnderSteps(t, c.limit, c.per, forward)
			})
		}
	}
}

func drawUnderSteps(t *testing.T, limit, per int64, forward bool) {
	with := window.New(per)
	lasts := with.Lasts()
	r := rand.New(rand.NewPCG(uint64(limit), 12))
	b := newTicketBench(t)
	var at, true_, ideal []int64
	room := func(granted []int64, now int64) bool {
		n := int64(len(granted)) - limit
		return n < 0 || granted[n] <= now-per
	}
	now, clock, last, refused, could := int64(1_700_000_000_000), int64(0), int64(0), 0, 0
	for asked := 0; asked < max(*drawsOfK12/14, 2*int(limit)); {
		switch r.IntN(2000) {
		case 0: // another leader comes, or the leader's clock jumps
			if clock -= r.Int64N(per * 2); forward {
				clock += r.Int64N(per * 4)
			}
			b.s = reloaded(t, b.s)
		case 1:
			now += r.Int64N(3 * per)
		case 2: // the leader asks to remove the node as too old
			now += lasts
			b.now = now + clock
			_, was := b.s.Tree().Find("/api/calls")
			b.do(Request{Op: OpReap, Body: []byte("/api/calls")})
			if _, there := b.s.Tree().Find("/api/calls"); was && !there {
				over := at[len(at)-1] + lasts
				must.That(t, over <= b.now, "removed at %d, and what it notes counts until %d", b.now, over)
				at, ideal, last = nil, nil, 0 // the node is gone, so the rate begins again
			}
		}
		now += r.Int64N(per/limit + 2)
		b.now = now + clock
		last = max(last, b.now)
		list := make([]Request, 1+r.IntN(4))
		for i := range list {
			list[i] = drawOf(limit, per, 0).Request(testIDs)
		}
		for _, out := range b.do(list...) {
			asked++
			if room(ideal, last) {
				ideal = append(ideal, last)
				could++
			}
			got := must.Get(window.ReadDrawn(out.Reply))(t)
			if !got.OK {
				refused++
				must.That(t, got.Wait > 0, "a refused draw waits for %d ms", got.Wait)
				continue
			}
			must.Equal(t, got.At, last, "the time of a draw")
			must.That(t, room(at, last), "draw %d", len(at))
			must.That(t, forward || room(true_, now), "draw %d by the true clock", len(at))
			at, true_ = append(at, last), append(true_, now)
		}
	}
	expect.That(t, refused > 0, "no draw is refused")
	least := could
	if limit > 256 {
		least -= least * 3 / 100
	}
	expect.That(t, len(true_) >= least, "%d draws are granted, and %d could be", len(true_), could)
}

// BenchmarkDraws measures a draw whose window is as large as it can be.
func BenchmarkDraws(b *testing.B) {
	bench := newTicketBench(b)
	for b.Loop() {
		bench.now++
		bench.draw(drawOf(1_000_000, 60_000, 0))
	}
	info, _ := bench.s.Tree().Get("/api/calls")
	b.ReportMetric(float64(len(info.Data)), "bytes")
}
