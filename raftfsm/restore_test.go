package raftfsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// fill makes nodes at a server, and returns the session that owns every third.
func (c *trio) fill(id int, prefix string, nodes int) session.Session {
	c.t.Helper()
	s := openSession(c.t, c.nodes[id], 30000).Session
	for i := range nodes {
		body := jute.AppendString(nil, fmt.Sprint(prefix, i))
		body = jute.AppendACL(jute.AppendBuffer(body, make([]byte, 20<<10)), jute.WorldAnyone)
		r := state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: jute.AppendInt(body, int32(i%3/2))}
		must.Equal(c.t, served(c.t, c.nodes[id], r).Code, jute.OK, "create")
	}
	return s
}

func backupOf(t testing.TB, n *Node) []byte {
	t.Helper()
	b := must.Get(n.Backup(t.Context()))(t)
	defer b.Close()
	var out bytes.Buffer
	must.OK(t, b.Write(&out))
	return out.Bytes()
}

// during runs something once most of a backup has been read.
type during struct {
	r    io.Reader
	left int
	do   func()
}

func (d *during) Read(b []byte) (int, error) {
	n, err := d.r.Read(b[:min(len(b), 500)])
	if d.left -= n; d.left <= 0 && d.do != nil {
		d.do()
		d.do = nil
	}
	return n, err
}

func most(b []byte, do func()) *during { return &during{bytes.NewReader(b), len(b) * 3 / 4, do} }

// restored checks that every server that runs has the state of the backup and has cut its clients off.
func (c *trio) restored(resets [4]int, zxid int64, old session.Session) {
	c.t.Helper()
	c.sameDigest()
	for id := 1; id <= 3; id++ {
		if c.nodes[id].closed.Load() {
			continue
		}
		expect.That(c.t, c.has(id, "/old1"),
			"server %d has not the state of the backup: want c.has(id, \"/old1\")", id)
		expect.That(c.t, !c.has(id, "/new1"),
			"server %d has not the state of the backup: want !c.has(id, \"/new1\")", id)
		expect.That(c.t, !c.has(id, "/old2"),
			"server %d has not the state of the backup: want !c.has(id, \"/old2\")", id)
		expect.That(c.t, c.nodes[id].Zxid() >= zxid,
			"server %d has not the state of the backup: want c.nodes[id].Zxid() >= zxid", id)
		expect.That(c.t, c.seen[id].resetCount() > resets[id],
			"server %d has not cut its clients off", id)
		c.nodes[id].View(func(s *state.State) {
			_, there := s.Sessions().Get(old.ID)
			expect.That(c.t, !there,
				"server %d has %d sessions: want !there", id, s.Sessions().Len())
			expect.Equal(c.t, s.Sessions().Len(), 0,
				"server %d has %d sessions: s.Sessions().Len()", id, s.Sessions().Len())
		})
	}
}

func (c *trio) resets() (n [4]int) {
	for id := 1; id <= 3; id++ {
		n[id] = c.seen[id].resetCount()
	}
	return n
}

func TestBackupIsRestoredOnAllServers(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	old := c.fill(lead, "/old", 90) // many pieces more than are under way at a time
	backup := backupOf(t, c.nodes[lead])
	c.fill(lead, "/new", 5)
	for _, by := range []int{lead%3 + 1, lead} {
		resets, before := c.resets(), c.nodes[by].Zxid()
		var staged error
		made, err := c.nodes[by].Restore(t.Context(), most(backup, func() {
			staged = c.nodes[by].Snapshot()
			expect.Equal(t, c.seen[by].resetCount(), resets[by], "clients were cut off too early")
		}), int64(len(backup)), false)
		must.OK(t, err, "restored by %d", by)
		must.That(t, made.Zxid >= before+state.Raised,
			"restored by %d: %+v %v: want made.Zxid >= before+state.Raised", by, made, err)
		must.That(t, made.Ended != 0 || by == lead,
			"restored by %d: %+v %v: want made.Ended != 0 || by == lead", by, made, err)
		must.Equal(t, made.Nodes, 4+60, "restored by %d: made.Nodes", by)
		expect.That(t, staged != nil && strings.Contains(staged.Error(), "restore is under way"),
			"a snapshot without what is kept beside the state: %v", staged)
		c.restored(resets, made.Zxid, old)
		eventually(t, "the leader waits for no session that is gone", func() bool {
			l := c.leader()
			return l != 0 && len(c.nodes[l].Deadlines()) == 0
		})
	}
	// The restored state is there after a restart, from the log and from a snapshot.
	for id := 1; id <= 3; id++ {
		if id != c.leader() {
			expect.OK(t, c.nodes[id].Snapshot(), "snapshot")
		}
	}
	zxid := c.nodes[lead].Zxid()
	for id := 1; id <= 3; id++ {
		stop(t, c.nodes[id])
		c.start(id)
		eventually(t, "it serves", c.seen[id].serving.Load)
	}
	c.sameDigest()
	expect.That(t, c.nodes[1].Zxid() >= zxid,
		"lost by the restart: want c.nodes[1].Zxid() >= zxid")
	expect.That(t, c.has(1, "/old1"), "lost by the restart: want c.has(1, \"/old1\")")
	c.fill(1, "/then", 3)
}

func TestSessionsOfABackupGoOn(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	s := c.fill(lead, "/old", 3)
	backup := backupOf(t, c.nodes[lead])
	made, err := c.nodes[lead].Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)), true)
	must.OK(t, err)
	must.Equal(t, made.Sessions, 1, "made.Sessions")
	must.Equal(t, made.Ended, 0, "made.Ended")
	must.That(t, c.has(lead, "/old2"), "%+v %v: want c.has(lead, \"/old2\")", made, err)
	left := c.nodes[c.mustLead()].Deadlines()
	if expect.Equal(t, len(left), 1, "deadlines %v: len(left)", left) {
		expect.That(t, left[s.ID] > 0, "deadlines %v: want left[s.ID] > 0", left)
	}
	r := state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/late", 0)}
	expect.That(t, must.Get(propose(c.nodes[lead], r))(t).Refused, "a write of a connection that was cut")
	body := state.SessionBody{Timeout: 30000, Password: s.Password, Owner: 1, Addr: "127.0.0.1"}
	if o, err := propose(c.nodes[lead], state.Request{Op: state.OpAttach, Session: s.ID, Body: body.Append(nil)}); err != nil || o.Code != jute.OK || o.Session.Gen <= s.Gen {
		t.Errorf("attach: %+v %v", o, err)
	}
}

// The death of a leader in the middle of a restore only delays the restore.
func TestRestoreOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	old := c.fill(lead, "/old", 90)
	backup := backupOf(t, c.nodes[lead])
	c.fill(lead, "/new", 5)
	resets, by := c.resets(), lead%3+1
	made, err := c.nodes[by].Restore(t.Context(), most(backup, c.nodes[lead].Abort), int64(len(backup)), false)
	must.OK(t, err)
	c.restored(resets, made.Zxid, old)
	c.start(lead)
	eventually(t, "it serves", c.seen[lead].serving.Load)
	resets[lead] = -1
	c.restored(resets, made.Zxid, old)
}

// A server that was away gets the restore from the log. A server that restarts in the middle begins the
// restore again.
func TestRestoreAndServersThatCome(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	old := c.fill(lead, "/old", 90)
	backup := backupOf(t, c.nodes[lead])
	c.fill(lead, "/new", 5)
	away := lead%3 + 1
	resets := c.resets()
	made, err := c.nodes[lead].Restore(t.Context(), most(backup, func() {
		stop(t, c.nodes[away])
		c.start(away) // reads half a backup from its log
		eventually(t, "it serves", c.seen[away].serving.Load)
		stop(t, c.nodes[away])
	}), int64(len(backup)), false)
	must.OK(t, err)
	c.start(away)
	eventually(t, "it serves", c.seen[away].serving.Load)
	resets[away] = 0
	c.restored(resets, made.Zxid, old)
}

// A client that brings a backup and fails leaves nothing behind.
func TestRestoreThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) { o.MaxNodes = 1000 })
	lead := c.mustLead()
	c.fill(lead, "/old", 30)
	backup := backupOf(t, c.nodes[lead])
	by := lead%3 + 1
	digest := func() (d uint64) { c.nodes[lead].View(func(s *state.State) { d = s.Digest() }); return d }
	before := digest()
	torn := errors.New("torn")
	bad := bytes.Clone(backup)
	bad[len(bad)/2] ^= 1
	stopped, stopNow := context.WithCancel(t.Context())
	for name, x := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want string
	}{
		"a file that cannot be read":  {t.Context(), io.MultiReader(bytes.NewReader(backup[:100]), iotest.ErrReader(torn)), "torn"},
		"a changed byte":              {t.Context(), bytes.NewReader(bad), "damaged"},
		"somebody who does not wait":  {stopped, most(backup, stopNow), "nothing was changed"},
		"something that is no backup": {t.Context(), strings.NewReader(strings.Repeat("x", len(backup))), "not a snapshot"},
	} {
		if _, err := c.nodes[by].Restore(x.ctx, x.r, int64(len(backup)), false); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, "the place is closed", func() bool { return !c.open(lead) && !c.open(by) })
	}
	// During a restore no client begins another one, at this server or another.
	_, err := c.nodes[by].Restore(t.Context(), io.MultiReader(most(backup[:len(backup)-10], func() {
		for id := 1; id <= 3; id++ {
			if _, err := c.nodes[id].Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)),
				false); err == nil || !strings.Contains(err.Error(), restore.ErrRestoring.Error()) {
				t.Errorf("a second one by %d: %v", id, err)
			}
		}
	}), iotest.ErrReader(torn)), int64(len(backup)), false)
	expect.Is(t, err, torn)
	// A server that ends in the middle gives up by beginning again.
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := c.nodes[by].Restore(ctx, most(backup, func() { close(began); <-ctx.Done() }), int64(len(backup)), false)
		ended <- err
	}()
	select {
	case <-began:
	case err := <-ended:
		t.Fatal(err)
	}
	c.nodes[by].Abort()
	cancel()
	expect.Fails(t, <-ended, "restored by a server that has ended")
	eventually(t, "the place is open at a server that may be behind", func() bool { return c.open(lead) })
	c.start(by)
	eventually(t, "the place is closed", func() bool { return !c.open(lead) && !c.open(by) })
	expect.Equal(t, digest(), before, "something has changed")
	expect.Fails(t, c.nodes[by].Fits(1001, 0), "more nodes than are allowed")
}

func (c *trio) open(id int) (open bool) {
	c.nodes[id].View(func(s *state.State) { _, _, open = s.Staged() })
	return open
}

// A leader gives up sending a snapshot and sends it again. The first copy may arrive late, on a delayed
// connection, when the follower has continued from the second: the follower has acknowledged entries that
// must not be lost.
func TestF5LateSnapshotTakesNothingBack(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	behind := lead%3 + 1
	from, to := c.nodes[lead], c.nodes[behind]
	c.create(lead, "/before")
	must.OK(t, from.Snapshot())
	snaps := from.disk.Snapshots(nil, func(error) {})
	list, err := snaps.List()
	must.That(t, err == nil && len(list) == 1, "%v %v", list, err)
	c.create(lead, "/after")
	eventually(t, "the follower has both", func() bool { return c.has(behind, "/after") })
	index, last := to.fsm.Index(), to.raft.LastIndex()
	meta, r := must.Get2(snaps.Open(list[0].ID))(t)
	defer r.Close()
	var resp raft.InstallSnapshotResponse
	err = from.raft.Trans.InstallSnapshot(peer.ServerID(to.id), raft.ServerAddress(to.o.Peers[to.id]),
		&raft.InstallSnapshotRequest{
			RPCHeader: from.raft.Header(), SnapshotVersion: meta.Version, Term: from.raft.CurrentTerm(),
			LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex},
		&resp, r)
	if expect.OK(t, err, "the leader is not told that the follower has it") {
		expect.That(t, resp.Success,
			"the leader is not told that the follower has it: %+v, %v: want resp.Success",
			resp, err)
	}
	expect.That(t, c.has(behind, "/after"),
		"the follower has gone back to entry %d, from %d: want c.has(behind, \"/after\")",
		to.fsm.Index(), index)
	expect.That(t, to.fsm.Index() >= index,
		"the follower has gone back to entry %d, from %d: want to.fsm.Index() >= index",
		to.fsm.Index(), index)
	if end, err := to.disk.Log().LastIndex(); err != nil || end < last {
		t.Errorf("its log ends at entry %d, and it had %d (%v)", end, last, err)
	}
	c.create(behind, "/goes-on")
	c.sameDigest()
}
