package state

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/state/window"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// expectBytes compares bytes with those of testdata/bytes.txt.
func expectBytes(t *testing.T, name string, bytes []byte) {
	t.Helper()
	file := string(must.Get(os.ReadFile("testdata/bytes.txt"))(t))
	for line := range strings.Lines(file) {
		if is, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); is == name {
			expect.Equal(t, hex.EncodeToString(bytes), want, "%s", name)
			return
		}
	}
	t.Errorf("testdata/bytes.txt has no line for %s", name)
}

// The encoding of a request never changes, because a log may have requests of an older release, and servers
// of two releases share one log.
func TestBytesOfServersRequestsStay(t *testing.T) {
	ids := []jute.ID{{Scheme: "sasl", ID: "ann"}}
	encoded := func(r Request) []byte { return r.Append(nil) }
	body := SessionBody{Timeout: 30_000, Password: [jute.PasswordSize]byte{1, 15: 16}, Owner: 2,
		Addr: "10.0.0.1"}
	member := Member{ID: 2, Incarnation: "i", PeerAddr: "a:1", ClientAddr: "b:2"}
	opening := Opening{SessionBody: body, Node: "/locks/a/lock-", Data: []byte("owner"), Seen: 9,
		Ticket: session.Ticket{Hash: session.Hash{3, 31: 4}, Identity: "digest:ann", Path: "/locks/a", Mode: 1,
			Permits: 2, Until: 1_700_000_060_000},
		TicketBounds: TicketBounds{All: 5, Identity: 6, Path: 7}}
	draw := Draw{Path: "/rates/r", Ask: window.Ask{Limit: 10, Per: 1000, Hash: [8]byte{8, 7: 9}},
		Identity: "ann", RateBounds: RateBounds{All: 11, Identity: 12}}
	staging := Staging{ID: 13, Origin: 1, Birth: 2, Size: 14}
	members := []config.Server{{ID: 1, Peer: "h:1", Client: "h:2", Voter: true},
		{ID: config.ZeroID, Peer: "g:1", Client: "g:2"}}
	now := int64(1_700_000_000_000)
	for name, bytes := range map[string][]byte{
		"session":        body.Append(nil),
		"member":         member.Append(nil),
		"forget":         encoded(Forget(2, 5)),
		"silent session": encoded(End(7, 3, EndExpired)),
		"closed session": encoded(End(7, 3, EndClosed)),
		"ended session":  encoded(End(7, 3, EndOperator)),
		"ticket":         encoded(opening.Open(ids)),
		"timeout":        encoded(ChangeTicket(7, 5000)),
		"end of ticket":  encoded(EndTicket(7, session.TicketGiven)),
		"draw":           encoded(draw.Request(ids)),
		"stage":          encoded(staging.Open()),
		"piece":          encoded(staging.Piece(3, []byte("bytes"))),
		"restore":        encoded(staging.Restore(true)),
		"unstage":        encoded(staging.GiveUp()),
		"founding":       Founding(members, now),
		"old founding":   OldFounding(members, now),
		"ticketing":      Ticketing(entries.OneLayout|entries.NoTTL, now),
	} {
		expectBytes(t, name, bytes)
	}
}

// The encoding of a snapshot never changes.
func TestBytesOfASnapshotStay(t *testing.T) {
	b := newTicketBench(t)
	b.do(openingOf(1, "/locks/a").Open(nil))
	b.do(drawOf(3, 1000, 1).Request(nil))
	file := must.Get(snapshotBytes(t, b.s))(t)
	expectBytes(t, "snapshot", file)
}
