package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// The zxids of a new cluster are its fencing tokens. They are higher than all tokens of an earlier cluster,
// and lower than 2^53, so that a client in JavaScript can hold them.
func TestG20TokensRiseOverTheLossOfACluster(t *testing.T) {
	day := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).UnixMilli()
	three := []config.Server{{ID: 1, Peer: "a:1", Client: "a:2", Voter: true},
		{ID: 2, Peer: "b:1", Client: "b:2", Voter: true}}
	for _, c := range []struct {
		name    string
		members []config.Server
		now     int64
		zxid    int64 // the zxid after the first entry; an entry without members takes no zxid
	}{
		{"alone", nil, day, TimeZxid(day) - 1},
		{"three", three, day, TimeZxid(day)},
		{"alone, by a clock that is not set", nil, 1000, 0},
		{"three, by a clock that is not set", three, 1000, 1 << 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New("c")
			must.OK(t, s.Apply(Founding(c.members, c.now), Silent{}))
			expect.Equal(t, s.Zxid(), c.zxid, "the zxid")
			must.OK(t, s.Apply(Founding(c.members, c.now+1), Silent{}))
			if c.zxid > 0 {
				expect.Equal(t, s.Zxid(), c.zxid, "the zxid after a second founding")
			}
			_, version := config.Cut(s.ConfigData())
			expect.Equal(t, version != 0, c.members != nil, "members are published")
			if c.now == day {
				next := New("d")
				must.OK(t, next.Apply(Founding(c.members, c.now+1), Silent{}))
				expect.That(t, next.Zxid() >= s.Zxid()+1000, "a cluster that begins a millisecond later: zxid %d behind %d",
					next.Zxid(), s.Zxid())
				expect.That(t, next.Zxid() < 1<<53, "zxid %d", next.Zxid())
			}
		})
	}
}

// The first configuration has the same version as in a new ZooKeeper ensemble, whatever its zxid is. Each
// change raises the version.
func TestVersionsOfConfigurationsCountFromTheFirst(t *testing.T) {
	members := []config.Server{{ID: 1, Peer: "a:1", Client: "a:2", Voter: true}}
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).UnixMilli()
	for name, entry := range map[string][]byte{
		"0.1.0":  OldFounding(members, now),
		"newest": Founding(members, now),
	} {
		t.Run(name, func(t *testing.T) {
			s := New("c")
			must.OK(t, s.Apply(entry, Silent{}))
			first := s.Zxid()
			version := func() int64 {
				_, v := config.Cut(s.ConfigData())
				return v
			}
			expect.Equal(t, version(), int64(1<<32), "the first version")
			for _, ahead := range []int64{0, 7} {
				s.zxid += ahead // other changes raise the zxid, too
				text := config.Text(append(members, config.Server{ID: 2 + uint32(ahead), Peer: "b:1", Client: "b:2"}))
				own := entries.Block{Count: 1, Requests: (&Request{Op: OpConfig, Body: []byte(text)}).Append(nil)}
				change := own.Append(entries.Begin(nil, 0))
				entries.Seal(change, now)
				must.OK(t, s.Apply(change, Silent{}))
				expect.Equal(t, version(), int64(1<<32)+s.Zxid()-first, "the version after a change")
			}
		})
	}
}

func TestTimeOfAZxid(t *testing.T) {
	for _, now := range []int64{zxidTime, zxidTime + 1, zxidTime + 123_456_789} {
		zxid := TimeZxid(now)
		expect.Equal(t, TimeOf(zxid), now, "the time of a time's zxid")
		expect.Equal(t, TimeOf(zxid+1), now+1, "the time of the next zxid")
	}
}

// A new cluster with a server of release 0.1.0 starts with that release's rules, and keeps them.
func TestClusterWithAnOlderServerBeginsAsBefore(t *testing.T) {
	one := []config.Server{{ID: 1, Peer: "a:1", Client: "a:2", Voter: true}}
	entry := OldFounding(one, time.Now().UnixMilli())
	expect.Equal(t, entry[1], entries.KindBatch, "the kind of the entry")
	s := New("c")
	must.OK(t, s.Apply(entry, Silent{}))
	expect.Equal(t, s.Zxid(), 1<<32, "the zxid")
	expect.Equal(t, s.rules, firstRules, "the rules")
}

// A snapshot holds the rules of its cluster, unless they are those of release 0.1.0. A server refuses rules
// of later releases.
func TestSnapshotTellsTheRules(t *testing.T) {
	for rules, ok := range map[int32]bool{firstRules: true, newestRules: true, newestRules + 1: false, -1: false} {
		s := New("c")
		s.rules = rules
		var b bytes.Buffer
		must.OK(t, s.StartSnapshot(Position{}).Write(&b, func(read func()) { read() }))
		got, _, err := ReadSnapshot(&b)
		expect.Equal(t, err == nil, ok, "rules %d: %v", rules, err)
		if err == nil {
			expect.Equal(t, got.rules, rules, "the rules")
		}
	}
	old, now := New("c"), New("c")
	now.rules = newestRules
	expect.Equal(t, len(now.header(Position{})), len(old.header(Position{}))+4, "the header")
}

// A multi of ten thousand creates of a thousand bytes is applied, as by ZooKeeper with a large buffer. Under
// the rules of release 0.1.0 it is refused, as by a server of that release.
func TestMultiOfTenThousandCreates(t *testing.T) {
	race.Alone(t)
	for rules, code := range map[int32]jute.ErrCode{firstRules: jute.BadArguments, newestRules: jute.OK} {
		t.Run(fmt.Sprint("rules ", rules), func(t *testing.T) {
			b := newBench(t)
			b.s.rules = rules
			s := b.session()
			b.do(create(s, "/a", 0), create(s, "/a/b", 0), create(s, "/a/b/c", 0))
			before := b.s.Tree().Count()
			var body []byte
			data := bytes.Repeat([]byte{'x'}, 1000)
			for i := range 10_000 {
				body = jute.AppendMultiHeader(body, jute.OpCreate, false, -1)
				body = jute.AppendString(body, fmt.Sprintf("/a/b/c/node-%06d", i))
				body = jute.AppendBuffer(body, data)
				body = jute.AppendACL(body, jute.WorldAnyone)
				body = jute.AppendInt(body, 0)
			}
			body = jute.AppendMultiHeader(body, jute.OpError, true, -1)
			out := b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpMulti, Body: body})[0]
			expect.Equal(t, out.Code, jute.OK, "the code of the reply")
			d := jute.NewDecoder(out.Reply)
			failed := jute.OK
			for h := d.MultiHeader(); !h.Done && d.Err() == nil; h = d.MultiHeader() {
				if h.Type != jute.OpError {
					_, _ = d.String()
				} else if e := jute.ErrCode(d.Int()); e == jute.BadArguments {
					failed = e
				}
			}
			expect.Equal(t, failed, code, "the worst code of an operation")
			want := before
			if code == jute.OK {
				want += 10_000
			}
			expect.Equal(t, b.s.Tree().Count(), want, "nodes")
		})
	}
}

// After a restore, no sequential node gets a name that the running cluster has given before. This includes
// names that it gave while the backup arrived, and directories that are empty in the backup.
func TestG19NoRestoreRepeatsAName(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, size := range []int{1, 40, 1 << 20} {
			t.Run(fmt.Sprintf("sessions are kept: %v, pieces of %d", keep, size), func(t *testing.T) {
				b := newBench(t)
				b.s.rules = newestRules
				s := b.session()
				paths := []string{"/q", "/q/deep", "/empty"}
				for _, p := range paths {
					b.do(create(s, p, 0))
				}
				b.do(create(s, "/q/deep/lock-", 3))
				backup := backupOf(t, b.s)
				given := map[string]bool{}
				give := func(s Request) {
					t.Helper()
					d := jute.NewDecoder(b.do(s)[0].Reply)
					name, _ := d.String()
					must.That(t, len(name) > 10, "the created name is %q, want a longer one", name)
					must.That(t, !given[name], "%q is given twice", name)
					given[string([]byte(name))] = true
				}
				for _, p := range paths {
					give(create(s, p+"/lock-", 3))
					give(create(s, p+"/lock-", 2))
				}
				x := b.stage(backup)
				for at, i := 0, 0; at < len(backup); at, i = at+size, i+1 {
					must.Equal(t, b.do(x.g.Piece(int64(at), backup[at:min(at+size, len(backup))]))[0].Code, jute.OK)
					if i%50 == 0 {
						give(create(s, paths[i/50%3]+"/lock-", 3))
					}
				}
				must.Equal(t, b.do(x.g.Restore(keep))[0].Code, jute.OK)
				other := b.session()
				for _, p := range paths {
					give(create(other, p+"/lock-", 3))
				}
			})
		}
	}
}

// Names repeat after a restore only under a parent that was deleted after the backup. Each such node has a
// higher fencing token than all nodes before the restore. Names of nodes in the backup do not repeat.
func TestG19G20NamesOfADeletedParentRepeatWithHigherTokens(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("sessions are kept: ", keep), func(t *testing.T) {
			b := newBench(t)
			b.s.rules = newestRules
			s := b.session()
			give := func(s session.Session, parent string) (name string, token int64) {
				t.Helper()
				d := jute.NewDecoder(b.do(create(s, parent+"/lock-", 2))[0].Reply)
				name, _ = d.String()
				name = strings.Clone(name)
				i, there := b.s.Tree().Get(name)
				must.That(t, there, "%q is not there", name)
				return name, i.Stat.Czxid
			}
			remove := func(path string) {
				t.Helper()
				body := jute.AppendInt(jute.AppendString(nil, path), -1)
				must.Equal(t, b.do(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpDelete, Body: body})[0].Code, jute.OK)
			}
			stored, given, highest := map[string]bool{}, map[string]bool{}, int64(0)
			for _, p := range []string{"/stays", "/gone", "/again"} {
				b.do(create(s, p, 0))
				name, _ := give(s, p)
				stored[name] = true
			}
			backup := backupOf(t, b.s)
			for _, p := range []string{"/stays", "/gone", "/again"} {
				for range 3 {
					name, token := give(s, p)
					given[name], highest = true, token
				}
			}
			for _, p := range []string{"/gone", "/again"} {
				for n := range 4 {
					remove(fmt.Sprintf("%s/lock-%010d", p, n))
				}
				remove(p)
			}
			b.do(create(s, "/again", 0))
			x := b.stage(backup)
			x.pieces(backup, 1<<20)
			must.Equal(t, b.do(x.g.Restore(keep))[0].Code, jute.OK)
			other := b.session()
			for _, p := range []string{"/stays", "/gone", "/again"} {
				for range 5 {
					name, token := give(other, p)
					expect.Equal(t, given[name] && p == "/stays", false, "%q is given twice", name)
					expect.That(t, token > highest, "%q has the token %d, after the token %d", name, token, highest)
					expect.That(t, !stored[name], "%q, which is in the backup, is given twice", name)
				}
			}
		})
	}
}

// A restore in a cluster with the rules of release 0.1.0 gives the result of that release.
func TestRestoreUnderTheFirstRulesIsAsBefore(t *testing.T) {
	b := newBench(t)
	s := b.session()
	b.do(create(s, "/q", 0))
	backup := backupOf(t, b.s)
	b.do(create(s, "/q/lock-", 2))
	x := b.stage(backup)
	x.pieces(backup, 100)
	must.Equal(t, b.do(x.g.Restore(false))[0].Code, jute.OK)
	i, _ := b.s.Tree().Get("/q")
	expect.Equal(t, i.Counter, 0, "the next number")
}
