package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/tree"
)

// ticketBench is a bench whose cluster has tickets. The test sets its time.
type ticketBench struct {
	*bench
	now int64
}

func newTicketBench(t testing.TB) *ticketBench {
	b := &ticketBench{newBench(t), 1000}
	must.OK(t, b.s.Apply(Ticketing(entries.NoQuota, b.now), &b.got))
	return b
}

func (b *ticketBench) do(list ...Request) []Outcome {
	b.t.Helper()
	b.got.outcomes, b.got.zxids, b.got.endings = nil, nil, nil
	entry := b.entry(b.next, list...)
	entries.Seal(entry, b.now)
	must.OK(b.t, b.s.Apply(entry, &b.got))
	b.next += uint64(len(list))
	return b.got.outcomes
}

var testIDs = []jute.ID{{Scheme: "sasl", ID: "ci"}}

func openingOf(secret byte, path string) *Opening {
	return &Opening{SessionBody: SessionBody{Timeout: 60_000, Owner: 1, Addr: "10.0.0.1",
		Password: [jute.PasswordSize]byte{secret}},
		Ticket:       session.Ticket{Hash: session.Hash{secret}, Identity: "sasl:ci", Path: path, Mode: 1},
		TicketBounds: TicketBounds{100, 100, 100}, Node: path + "/_c_x-lock-", Data: []byte("owner"),
		Seen: Unseen}
}

// A request for a ticket makes its session, directory and contender with one zxid. The same request again
// finds the ticket.
func TestTicketIsOpenedOnce(t *testing.T) {
	b := newTicketBench(t)
	before := b.s.Zxid()
	o := openingOf(1, "/ci/deploy")
	first := b.do(o.Open(testIDs))[0]
	must.Equal(t, first.Code, jute.OK)
	expect.Equal(t, b.s.Zxid(), before+1, "the zxid")
	nodes := b.s.Tree().SomeEphemeralsOf(first.Session.ID, 9)
	expect.List(t, nodes, []string{"/ci/deploy/_c_x-lock-0000000000"})
	info, _ := b.s.Tree().Get("/ci/deploy")
	expect.Equal(t, info.Kind, tree.ContainerNode, "the kind of the directory")
	again := b.do(o.Open(testIDs))[0]
	expect.Equal(t, again.Code, jute.OK, "the request again")
	expect.Equal(t, again.Session, first.Session, "session of the request again")
	expect.Equal(t, len(first.Reply), 0, "bytes of the first reply: %q", first.Reply)
	expect.That(t, len(again.Reply) > 0, "the second reply does not say that the ticket was there")
	expect.Equal(t, b.s.Zxid(), before+1, "the zxid after the request came again")
	got, known := b.s.Sessions().Ticket(session.Hash{1})
	expect.That(t, known, "the ticket is not found by its secret")
	expect.Equal(t, got, first.Session, "session found by the secret")
}

// A ticket that cannot have its contender leaves nothing behind.
func TestTicketThatIsRefusedLeavesNothing(t *testing.T) {
	b := newTicketBench(t)
	s := b.session()
	b.do(create(s, "/eph", 1), create(s, "/locks", 0))
	for name, c := range map[string]struct {
		change func(*Opening)
		code   jute.ErrCode
	}{
		"below an ephemeral":  {func(o *Opening) { o.Node = "/eph/a/lock-" }, jute.NoChildrenForEphemerals},
		"a wrong path":        {func(o *Opening) { o.Node = "/a//b/lock-" }, jute.BadArguments},
		"a changed directory": {func(o *Opening) { o.Node, o.Seen = "/locks/lock-", 1 }, jute.BadVersion},
		"a directory":         {func(o *Opening) { o.Node, o.Seen = "/locks/lock-", 0 }, jute.BadVersion},
		"in all":              {func(o *Opening) { o.All = 0 }, jute.QuotaExceeded},
		"of the identity":     {func(o *Opening) { o.TicketBounds.Identity = 0 }, jute.QuotaExceeded},
		"on the path":         {func(o *Opening) { o.TicketBounds.Path = 0 }, jute.QuotaExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			o := openingOf(1, "/ci")
			c.change(o)
			zxid, digest, count := b.s.Zxid(), b.s.Digest(), b.s.Tree().Count()
			expect.Equal(t, b.do(o.Open(nil))[0].Code, c.code, "the code")
			expect.Equal(t, b.s.Zxid(), zxid, "the zxid")
			expect.Equal(t, b.s.Digest(), digest, "the digest")
			expect.Equal(t, b.s.Tree().Count(), count, "nodes")
			expect.Equal(t, b.s.Sessions().Tickets(), 0, "tickets")
			expect.Equal(t, b.s.Sessions().Len(), 1, "sessions")
		})
	}
}

// A request for a ticket needs the rights that a client with the same identities needs.
func TestTicketNeedsTheRightToCreate(t *testing.T) {
	b := newTicketBench(t)
	s := b.session()
	acl := []jute.ACL{{Perms: jute.PermAll, ID: jute.ID{Scheme: "sasl", ID: "ci"}}}
	body := jute.AppendInt(jute.AppendACL(jute.AppendBuffer(jute.AppendString(nil, "/ci"), nil), acl), 0)
	b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, IDs: testIDs, Body: body})
	other := []jute.ID{{Scheme: "sasl", ID: "other"}}
	expect.Equal(t, b.do(openingOf(1, "/ci").Open(other))[0].Code, jute.NoAuth)
	expect.Equal(t, b.do(openingOf(1, "/ci").Open(testIDs))[0].Code, jute.OK)
}

// No connection can attach to a ticket, whatever its password is.
func TestNoConnectionAttachesToATicket(t *testing.T) {
	b := newTicketBench(t)
	o := openingOf(1, "/ci")
	got := b.do(o.Open(nil))[0].Session
	attach := Request{Op: OpAttach, Session: got.ID, Body: o.SessionBody.Append(nil)}
	expect.Equal(t, b.do(attach)[0].Code, jute.SessionExpired, "the code of an attach with the right password")
	expect.That(t, !b.s.Sessions().Check(got.ID, got.Password), "the password is right")
	now, _ := b.s.Sessions().Get(got.ID)
	expect.Equal(t, now, got, "the session")
}

// A ticket's end and its cause are known for ten minutes. In that time no request opens the ticket again.
func TestEndedTicketStaysEnded(t *testing.T) {
	for _, why := range []session.TicketEnd{session.TicketGiven, session.TicketRevoked, session.TicketRemoved,
		session.TicketEnded, session.TicketExpired} {
		t.Run(fmt.Sprint(why), func(t *testing.T) {
			b := newTicketBench(t)
			o := openingOf(1, "/ci")
			if why == session.TicketExpired {
				o.Until = 2000
			}
			id := b.do(o.Open(nil))[0].Session.ID
			if why == session.TicketExpired {
				expect.That(t, b.do(EndTicket(id, why))[0].Refused, "a ticket ended before its last moment")
				expect.Equal(t, len(b.s.Sessions().TicketsDue(1999, 9, nil)), 0, "due early")
				expect.List(t, b.s.Sessions().TicketsDue(2000, 9, nil), []int64{id})
				b.now = 2000
			}
			expect.That(t, !b.do(EndTicket(id, why))[0].Refused, "the ticket does not end")
			expect.List(t, b.got.endings, []int64{id})
			expect.That(t, b.do(EndTicket(id, why))[0].Refused, "a ticket ended twice")
			expect.Equal(t, len(b.s.Tree().SomeEphemeralsOf(id, 9)), 0, "nodes")
			ended := b.now
			for _, after := range []int64{0, session.KeptEndTime - 1} {
				b.now = ended + after
				e, known := b.s.Sessions().EndOfTicket(session.Hash{1}, b.now)
				want := session.EndedTicket{Hash: o.Hash, Identity: "sasl:ci", Path: "/ci", Why: why, At: ended}
				expect.That(t, known, "the end is forgotten after %d ms", after)
				expect.Equal(t, e, want, "the end that is known after %d ms", after)
				o.Until = 0
				expect.Equal(t, b.do(o.Open(nil))[0].Code, jute.SessionExpired, "opened after %d ms", after)
			}
			b.now = ended + session.KeptEndTime
			expect.Equal(t, b.do(o.Open(nil))[0].Code, jute.OK, "opened again when it is forgotten")
		})
	}
}

// The leader and an operator end a ticket as they end a session, and the cause is known.
func TestTicketEndsAsASession(t *testing.T) {
	for cause, why := range map[EndCause]session.TicketEnd{EndExpired: session.TicketExpired,
		EndOperator: session.TicketEnded} {
		b := newTicketBench(t)
		s := b.do(openingOf(1, "/ci").Open(nil))[0].Session
		b.do(End(s.ID, s.Gen, cause))
		e, known := b.s.Sessions().EndOfTicket(session.Hash{1}, b.now)
		expect.That(t, known, "cause %d: the end is not known", cause)
		expect.Equal(t, e.Why, why, "cause %d", cause)
	}
}

// The timeout of a ticket can be changed, but not that of a client's session. If the leader decided to end
// the ticket before the change, that end has no effect.
func TestChangeOfATicketsTimeout(t *testing.T) {
	b := newTicketBench(t)
	client := b.session()
	expect.That(t, b.do(ChangeTicket(client.ID, 5000))[0].Refused, "a client's session was changed")
	expect.That(t, b.do(EndTicket(client.ID, session.TicketGiven))[0].Refused, "a client's session was ended")
	s := b.do(openingOf(1, "/ci").Open(nil))[0].Session
	late := End(s.ID, s.Gen, EndExpired)
	s.Timeout, s.Gen = 5000, 2
	expect.Equal(t, b.do(ChangeTicket(s.ID, 5000))[0].Session, s)
	expect.That(t, b.do(late)[0].Refused, "the ticket ended")
	now, _ := b.s.Sessions().Get(s.ID)
	expect.Equal(t, now, s, "the session")
}

// Until all servers know tickets, the state refuses them, and a snapshot has no part for them. Release 0.1.0
// refuses the entry that allows tickets.
func TestNoTicketBeforeAllServersKnowThem(t *testing.T) {
	b := newBench(t)
	expect.Equal(t, b.do(openingOf(1, "/ci").Open(nil))[0].Code, jute.Unimplemented)
	expect.That(t, !b.s.HasTickets(), "the cluster has tickets")
	before := backupOf(t, b.s)
	entry := Ticketing(entries.NoQuota|entries.Full, 1000)
	expect.Equal(t, entry[1]&0x07, 4, "release 0.1.0 does not refuse the entry")
	must.OK(t, b.s.Apply(entry, &b.got))
	expect.That(t, b.s.HasTickets(), "the cluster has no tickets")
	kinds := func(backup []byte) (list []byte) {
		c := chunks{take: func(kind byte, _ []byte) error { list = append(list, kind); return nil }}
		must.OK(t, c.read(bytes.NewReader(backup)))
		return list
	}
	expect.List(t, kinds(before), []byte{chunkHeader, chunkSessions, chunkNodes, chunkEnd}, "chunks before")
	want := []byte{chunkHeader, chunkSessions, chunkTickets, chunkNodes, chunkEnd}
	expect.List(t, kinds(backupOf(t, b.s)), want, "chunks with tickets")
	_, _, err := ReadSnapshot(bytes.NewReader(before))
	expect.OK(t, err, "a snapshot without tickets")
}

// A cluster without tickets refuses a backup with tickets, as release 0.1.0 does.
func TestBackupWithTicketsNeedsAClusterWithThem(t *testing.T) {
	from := newTicketBench(t)
	from.do(openingOf(1, "/ci").Open(nil))
	backup := backupOf(t, from.s)
	b := newBench(t)
	o := b.stage(backup).pieces(backup, 1<<20)
	expect.Equal(t, o.Code, jute.BadArguments, "the answer to a backup with tickets")
	expect.Has(t, string(o.Reply), "--ticket-addr")
	expect.That(t, b.s.staged == nil, "the place for the backup is open")
}

// After a restore that keeps sessions, the tickets of the backup continue. All other tickets have ended, and
// the state knows why.
func TestTicketsOverARestore(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			b := newTicketBench(t)
			b.do(openingOf(1, "/ci").Open(nil), openingOf(2, "/ci").Open(nil))
			given, _ := b.s.Sessions().Ticket(session.Hash{2})
			b.do(EndTicket(given.ID, session.TicketGiven))
			backup := backupOf(t, b.s)
			b.do(openingOf(3, "/ci").Open(nil))
			g := b.stage(backup)
			g.pieces(backup, 1<<20)
			must.Equal(t, b.do(g.g.Restore(keep))[0].Code, jute.OK)
			_, lives := b.s.Sessions().Ticket(session.Hash{1})
			expect.Equal(t, lives, keep, "the ticket of the backup lives")
			_, lives = b.s.Sessions().Ticket(session.Hash{3})
			expect.That(t, !lives, "the later ticket lives")
			want := map[byte]session.TicketEnd{2: session.TicketGiven, 3: session.TicketEnded}
			if !keep {
				want[1] = session.TicketEnded
			}
			for secret, why := range want {
				e, known := b.s.Sessions().EndOfTicket(session.Hash{secret}, b.now)
				expect.That(t, known, "the end of ticket %d is not known", secret)
				expect.Equal(t, e.Why, why, "the end of ticket %d", secret)
			}
			expect.Equal(t, b.do(openingOf(4, "/ci").Open(nil))[0].Code, jute.OK, "a new ticket")
		})
	}
}

// Servers that apply the same requests have the same state, even if one of them starts from a snapshot in
// between. A contender always has its ticket.
func TestTicketsAreDeterministic(t *testing.T) {
	race.Alone(t)
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		a := newTicketBench(t)
		b := &ticketBench{&bench{t: t, s: reloaded(t, a.s), birth: a.birth, next: a.next, got: collector{
			births: map[uint32]uint32{}}}, a.now}
		for range 300 {
			var list []Request
			for range 1 + r.IntN(4) {
				secret := byte(1 + r.IntN(12))
				s, _ := a.s.Sessions().Ticket(session.Hash{secret})
				switch r.IntN(8) {
				case 6:
					d := drawOf(1+r.Int64N(3), 100_000, secret)
					d.Path = []string{"/p0", "/r", "/r/s", "/r/s/t", "/u/v/w"}[r.IntN(5)]
					d.Identity, d.RateBounds = fmt.Sprint(r.IntN(2)), RateBounds{7, 5}
					list = append(list, d.Request(testIDs))
				case 7:
					path := []string{"/r", "/r/s", "/r/s/t", "/u/v/w", "/u/v", "/u"}[r.IntN(6)]
					list = append(list, Request{Op: OpReap, Body: []byte(path)})
				case 0, 1:
					o := openingOf(secret, fmt.Sprintf("/p%d/q", r.IntN(3)))
					o.TicketBounds = TicketBounds{8, 6, 4}
					o.Mode, o.Until = byte(r.IntN(3)), a.now*int64(r.IntN(2))
					list = append(list, o.Open(testIDs))
				case 2:
					list = append(list, ChangeTicket(s.ID, 4000+int32(r.IntN(9))))
				case 3:
					list = append(list, EndTicket(s.ID, session.TicketEnd(1+r.IntN(5))))
				case 4:
					list = append(list, End(s.ID, s.Gen, EndCause(r.IntN(3))))
				case 5:
					paths := a.s.Tree().SomeEphemeralsOf(s.ID, 1)
					if len(paths) > 0 {
						list = append(list, Request{Session: s.ID, Gen: s.Gen, Op: jute.OpDelete,
							Body: jute.AppendInt(jute.AppendString(nil, paths[0]), -1)})
					}
				}
			}
			if len(list) == 0 {
				continue
			}
			a.now += int64(r.IntN(100_000))
			b.now = a.now
			one, two := a.do(list...), b.do(list...)
			for i := range one {
				must.Equal(t, one[i].Code, two[i].Code, "seed %d: one[i].Code", seed)
				must.Equal(t, one[i].Refused, two[i].Refused, "seed %d: one[i].Refused", seed)
				must.That(t, bytes.Equal(one[i].Reply, two[i].Reply),
					"seed %d: %+v and %+v: want bytes.Equal(one[i].Reply, two[i].Reply)",
					seed, one[i], two[i])
			}
			must.Equal(t, a.s.Digest(), b.s.Digest(), "seed %d: the digest", seed)
			if r.IntN(20) == 0 {
				b.s = reloaded(t, b.s)
			}
			must.That(t, bytes.Equal(a.s.encodedTickets(), b.s.encodedTickets()),
				"seed %d: the encoded tickets differ", seed)
			all, _ := a.s.Sessions().TicketsOf("sasl:ci", "")
			must.Equal(t, all, a.s.Sessions().Tickets(), "seed %d: tickets", seed)
			must.That(t, all <= 6, "seed %d: %d tickets, want at most 6", seed, all)
			for id := range a.s.Tree().Owners() {
				_, lives := a.s.Sessions().Get(id)
				must.That(t, lives, "seed %d: nodes of session 0x%x, which has ended", seed, id)
			}
			for path := range a.s.begun.by {
				_, there := a.s.Tree().Find(path)
				must.That(t, there, "seed %d: the rate %s counts, and its node is gone", seed, path)
				must.That(t, a.s.begun.all <= 7, "seed %d: %d nodes of rates, want at most 7", seed, a.s.begun.all)
			}
		}
	}
}

// encodedTickets returns the tickets and the rates as bytes.
func (s *State) encodedTickets() []byte {
	return appendRates(s.sessions.Hold().AppendTickets(nil), s.begun.by)
}

func reloaded(t *testing.T, s *State) *State {
	got, _, err := ReadSnapshot(bytes.NewReader(backupOf(t, s)))
	must.OK(t, err)
	return got
}

// A damaged chunk of tickets is refused.
func TestDamagedTicketsAreRefused(t *testing.T) {
	b := newTicketBench(t)
	for i := range byte(3) {
		b.do(openingOf(1+i, "/ci").Open(nil))
	}
	s, _ := b.s.Sessions().Ticket(session.Hash{2})
	b.do(EndTicket(s.ID, session.TicketGiven))
	image := b.s.encodedTickets()
	load := func(image []byte) error {
		sessions := session.NewTable(0)
		d := jute.NewDecoder(b.s.sessions.Hold().Append(nil))
		must.OK(t, sessions.Load(&d))
		d = jute.NewDecoder(image)
		err := sessions.LoadTickets(&d)
		if err == nil && len(d.Rest()) == 0 {
			expect.That(t, bytes.Equal(sessions.Hold().AppendTickets(nil), image), "it is read otherwise")
		}
		return err
	}
	must.OK(t, load(image))
	for n := range image {
		expect.That(t, load(image[:n]) != nil, "cut to %d bytes: loaded", n)
	}
	for at, v := range map[int]byte{0: 0x7f, 7: 3, 8: 9, 15: 0xee} {
		bad := slices.Clone(image)
		bad[at] = v
		expect.That(t, load(bad) != nil, "byte %d is %x: loaded", at, v)
	}
}
