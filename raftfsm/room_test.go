package raftfsm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/offline"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// asker is a session that writes.
type asker struct {
	t testing.TB
	n *Node
	s state.Outcome
}

func newAsker(t testing.TB, n *Node) *asker {
	eventually(t, "serving", func() bool { ok, _ := n.Serving(); return ok })
	return &asker{t, n, openSession(t, n, 60_000)}
}

func (a *asker) do(op jute.OpCode, body []byte) jute.ErrCode {
	a.t.Helper()
	o := must.Get(propose(a.n, state.Request{Session: a.s.Session.ID, Gen: a.s.Session.Gen, Op: op,
		Body: body}))(a.t)
	return o.Code
}

func (a *asker) create(path string) jute.ErrCode { return a.do(jute.OpCreate, createBody(path, 0)) }

func (a *asker) set(path, data string) jute.ErrCode {
	b := jute.AppendBuffer(jute.AppendString(nil, path), []byte(data))
	return a.do(jute.OpSetData, jute.AppendInt(b, -1))
}

func (a *asker) remove(path string) jute.ErrCode {
	return a.do(jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
}

// When one disk has little free space, the leader makes all servers refuse requests that grow the state. They
// accept all other requests. When the disk has room again, they accept all requests.
func TestL20LowDiskRefusesWhatGrows(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(512 << 20)
	n, _ := start(t, Options{DataDir: t.TempDir(), FreeBytes: func(string) (int64, error) {
		return free.Load(), nil
	}})
	a := newAsker(t, n)
	if code := a.create("/a"); code != jute.OK { // the node has four bytes of data, and fits exactly
		t.Fatalf("create with just enough room: %v", code)
	}
	free.Add(-1)
	eventually(t, "creates are refused", func() bool {
		return a.create("/b") == jute.Throttled ||
			a.remove("/b") != jute.OK
	})
	for _, c := range []struct {
		name      string
		got, want jute.ErrCode
	}{
		{"more data", a.set("/a", "12345"), jute.Throttled},
		{"as much data", a.set("/a", "1234"), jute.OK},
		{"less data", a.set("/a", "1"), jute.OK},
		{"delete", a.remove("/a"), jute.OK},
	} {
		expect.Equal(t, c.got, c.want, "%s on a low disk", c.name)
	}
	b := newAsker(t, n) // on a low disk a session can still be opened
	free.Add(1)
	eventually(t, "creates are taken again", func() bool { return b.create("/b") == jute.OK })
}

// Hard quotas count only with the option EnforceQuota.
func TestHardQuotasCountWhereTheyAreEnforced(t *testing.T) {
	t.Parallel()
	for enforced, want := range map[bool]jute.ErrCode{false: jute.OK, true: jute.QuotaExceeded} {
		n, _ := start(t, Options{EnforceQuota: enforced})
		a := newAsker(t, n)
		const limits, stats = "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"
		for _, path := range []string{"/q", "/zookeeper/quota/q", limits, stats} {
			must.Equal(t, a.create(path), jute.OK, "create %s", path)
		}
		must.Equal(t, a.set(stats, "count=1,bytes=0"), jute.OK)
		must.Equal(t, a.set(limits, "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1"), jute.OK)
		expect.Equal(t, a.create("/q/a"), want, "a node above the quota, enforced: %v", enforced)
	}
}

// Requests that would grow the tree beyond its limits are refused, as they are when a disk has little free
// space.
func TestL19TreeSizeIsBounded(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"nodes": {MaxNodes: 20}, "bytes": {MaxBytes: 300}} {
		t.Run(name, func(t *testing.T) {
			n, _ := start(t, o)
			a := newAsker(t, n)
			made := 0
			eventually(t, "creates are refused", func() bool {
				made++
				return a.create(fmt.Sprintf("/x%d", made)) == jute.Throttled
			})
			expect.That(t, n.Status().Full != "", "the status does not tell why")
			for i := range made - 1 {
				must.Equal(t, a.remove(fmt.Sprintf("/x%d", i+1)), jute.OK, "delete")
			}
			eventually(t, "creates are taken again", func() bool { return a.create("/y") == jute.OK })
		})
	}
}

// ACLs take room like data. Long ones are refused like long data.
func TestL19ACLsAreBounded(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{MaxBytes: 100 << 10})
	a := newAsker(t, n)
	const nodes = 20
	acl := func(path string, entries int) jute.ErrCode {
		list := make([]jute.ACL, entries)
		for i := range list {
			list[i] = jute.ACL{Perms: jute.PermAll, ID: jute.ID{Scheme: "digest", ID: fmt.Sprintf("%s-%d:hash", path,
				i)}}
		}
		list = append(list, jute.WorldAnyone...)
		return a.do(jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, path), list), -1))
	}
	for i := range nodes {
		must.Equal(t, a.create(fmt.Sprintf("/x%d", i)), jute.OK)
	}
	at := 0
	eventually(t, "long ACLs are refused", func() bool {
		at = (at + 1) % nodes
		return acl(fmt.Sprintf("/x%d", at), 400) == jute.Throttled
	})
	expect.Equal(t, a.create("/y"), jute.Throttled, "a node more")
	expect.Equal(t, acl("/x0", 1), jute.OK, "a short ACL")
	expect.Has(t, n.Status().Full, "data and ACLs")
	for i := range nodes {
		must.Equal(t, acl(fmt.Sprintf("/x%d", i), 0), jute.OK, "the ACL of all nodes")
	}
	eventually(t, "creates are taken again", func() bool { return a.create("/y") == jute.OK })
	expect.Equal(t, acl("/y", 400), jute.OK, "a long ACL")
}

// The leader refuses requests that grow the state if the disk of any server has little free space.
func TestL20LowDiskOfAFollower(t *testing.T) {
	t.Parallel()
	var free [4]atomic.Int64
	for i := range free {
		free[i].Store(1 << 40)
	}
	c := newTrio(t, true, func(o *Options) {
		id := o.ID
		o.FreeBytes = func(string) (int64, error) { return free[id].Load(), nil }
	})
	for id := 1; id <= 3; id++ {
		a := newAsker(t, c.nodes[id%3+1])
		free[id].Store(0)
		eventually(t, fmt.Sprintf("creates are refused for server %d", id), func() bool {
			a.remove("/b")
			return a.create("/b") == jute.Throttled
		})
		expect.Has(t, c.nodes[c.mustLead()].Status().Full, "MiB left",
			"the leader refuses for server %d, and says of it", id)
		free[id].Store(1 << 40)
		eventually(t, "creates are taken again", func() bool { a.remove("/b"); return a.create("/b") == jute.OK })
	}
}

// A client that overwrites one large node fills the disk no further than the log's limit in bytes, however
// many entries the log may keep.
func TestLogIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const size, most = 256 << 10, 8 << 20
	const trailingLeast = 64 // entries that stay in the log even if they are long
	n, _ := start(t, Options{DataDir: t.TempDir(), SnapshotBytes: 4 << 20, TrailingBytes: most})
	a := newAsker(t, n)
	must.Equal(t, a.create("/a"), jute.OK)
	data := strings.Repeat("x", size)
	for range 200 { // 50 MiB in all
		must.Equal(t, a.set("/a", data), jute.OK)
	}
	// A snapshot cuts the log, by whole segments.
	must.OK(t, n.Snapshot())
	last, first := n.raft.LastIndex(), uint64(0)
	eventually(t, "the log is cut", func() bool {
		var err error
		first, err = n.disk.Log().FirstIndex()
		must.OK(t, err)
		return (last-first)*size <= most+trailingLeast*size
	})
	expect.That(t, last-first >= trailingLeast/2, "only %d entries stay", last-first)
}

// Requests that are refused for lack of room take no room themselves, at any server: the log keeps only the
// outcome. A request that frees room is accepted at any length.
func TestR8RefusedRequestsTakeNoRoom(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 40)
	c := newTrio(t, true, func(o *Options) {
		o.FreeBytes = func(string) (int64, error) { return free.Load(), nil }
	})
	leader := c.nodes[c.mustLead()]
	big := strings.Repeat("x", 256<<10)
	a := newAsker(t, leader)
	many := make([]string, 200)
	must.Equal(t, a.create("/a"), jute.OK, "no room to begin with")
	must.Equal(t, a.set("/a", big), jute.OK, "no room to begin with")
	for i := range many {
		many[i] = fmt.Sprintf("/many%0100d", i)
		must.Equal(t, a.create(many[i]), jute.OK, "no room to begin with")
	}
	free.Store(0)
	for id := 1; id <= 3; id++ {
		eventually(t, "all know", func() bool { return c.nodes[id].fsm.Low() })
	}
	grown := func(from uint64) (bytes int) {
		for i := from + 1; i <= leader.raft.LastIndex(); i++ {
			var l raft.Log
			must.OK(t, leader.disk.Log().GetLog(i, &l))
			bytes += len(l.Data)
		}
		return bytes
	}
	for id := 1; id <= 3; id++ {
		b := newAsker(t, c.nodes[id])
		from := leader.raft.LastIndex()
		for range 50 { // 12.5 MiB in all
			must.Equal(t, b.set("/a", big), jute.Throttled, "a large node overwritten on a low disk")
		}
		n := grown(from)
		expect.That(t, n <= 32<<10, "50 refused requests through server %d took %d bytes of log", id, n)
		expect.Equal(t, b.set("/a", big[:100]), jute.OK, "a short write")
	}
	var body []byte
	for _, path := range many {
		body = jute.AppendMultiHeader(body, jute.OpDelete, false, -1)
		body = jute.AppendInt(jute.AppendString(body, path), -1)
	}
	expect.Equal(t, a.do(jute.OpMulti, jute.AppendMultiHeader(body, jute.OpError, true, -1)), jute.OK,
		"a long multi of deletes")
	free.Store(1 << 40)
	for id := 1; id <= 3; id++ { // each server learns that there is room again, even if no request comes
		eventually(t, "all know", func() bool { return !c.nodes[id].fsm.Low() })
	}
	expect.Equal(t, a.set("/a", big), jute.OK, "there is room again")
}

// Only a connection to the leader ends the time without a leader.
func TestOnlyTheLeadersConnectionEndsTheSearch(t *testing.T) {
	t.Parallel()
	w := &leaderWatch{leader: 2}
	w.broken()
	w.held(3)
	expect.That(t, !w.lost.IsZero(), "a connection to another server is taken for one to the leader")
	w.held(2)
	expect.That(t, w.lost.IsZero(), "the leader is held and counts as lost")
}

// The next token of a lock is larger than all earlier ones, in whatever order restores and recoveries follow
// each other. Here each restore uses the oldest backup.
func TestG20TokensGrowOverRestoresAndRecoveries(t *testing.T) {
	t.Parallel()
	type server struct {
		t       *testing.T
		n       *Node
		dir     string
		backup  []byte
		file    string
		highest int64
	}
	grant := func(s *server, what string) {
		s.t.Helper()
		eventually(s.t, "it serves", func() bool { ok, _ := s.n.Serving(); return ok })
		session := openSession(s.t, s.n, 30000).Session
		o, err := propose(s.n, state.Request{Session: session.ID, Gen: session.Gen, Op: jute.OpCreate,
			Body: createBody("/lock", 3)})
		must.OK(s.t, err, "%s", what)
		must.Equal(s.t, o.Code, jute.OK, "%s: o.Code", what)
		expect.That(s.t, o.Zxid > s.highest,
			"%s: token 0x%x is granted behind 0x%x", what, o.Zxid, s.highest)
		s.highest = max(s.highest, o.Zxid)
	}
	ways := map[string]func(s *server) error{
		"live": func(s *server) error {
			_, err := s.n.Restore(s.t.Context(), bytes.NewReader(s.backup), int64(len(s.backup)), false)
			return err
		},
		"offline": func(s *server) error {
			stop(s.t, s.n)
			s.dir = filepath.Join(s.t.TempDir(), "data")
			_, err := offline.Restore(s.t.Context(), s.file, s.dir, 1, false, 3)
			s.n, _ = start(s.t, Options{DataDir: s.dir})
			return err
		},
		"recover": func(s *server) error {
			stop(s.t, s.n)
			r, err := offline.PlanRecovery(s.dir)
			if err == nil {
				_, err = r.Run(s.t.Context(), 2)
			}
			s.n, _ = start(s.t, Options{DataDir: s.dir})
			return err
		},
	}
	var chains [][]string
	for a := range ways {
		for b := range ways {
			chains = append(chains, []string{a, b})
		}
	}
	for _, chain := range chains {
		t.Run(strings.Join(chain, " then "), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			n, _ := start(t, Options{DataDir: dir})
			s := &server{t: t, n: n, dir: dir}
			grant(s, "the first")
			s.backup = backupOf(t, n)
			s.file = filepath.Join(t.TempDir(), "backup")
			must.OK(t, os.WriteFile(s.file, s.backup, 0o600))
			grant(s, "behind the backup")
			for _, way := range chain {
				must.OK(t, ways[way](s))
				grant(s, way)
			}
		})
	}
}
