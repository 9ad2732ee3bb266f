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

// fill() creates nodes at a server, every third of them ephemeral. It returns the session that owns the
// ephemeral nodes.
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

// The type `during` is a reader that calls a function when it has read most of a backup.
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

// restored() checks that each running server has the state of the backup, and has cut its clients off.
func (c *trio) restored(resets [4]int, zxid int64, old session.Session) {
	c.t.Helper()
	c.sameDigest()
	for id := 1; id <= 3; id++ {
		if c.nodes[id].closed.Load() {
			continue
		}
		expect.That(c.t, c.has(id, "/old1"), "server %d lacks a node of the backup", id)
		expect.That(c.t, !c.has(id, "/new1"), "server %d has a node that came after the backup", id)
		expect.That(c.t, !c.has(id, "/old2"), "server %d has an ephemeral node of a session that ended", id)
		expect.That(c.t, c.nodes[id].Zxid() >= zxid, "server %d is at zxid 0x%x, want 0x%x or later", id,
			c.nodes[id].Zxid(), zxid)
		expect.That(c.t, c.seen[id].resetCount() > resets[id],
			"server %d has not cut its clients off", id)
		c.nodes[id].View(func(s *state.State) {
			_, there := s.Sessions().Get(old.ID)
			expect.That(c.t, !there, "server %d has a session of the backup", id)
			expect.Equal(c.t, s.Sessions().Len(), 0, "sessions at server %d", id)
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
	old := c.fill(lead, "/old", 90) // the backup has many more pieces than may be under way at once
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
		must.That(t, made.Zxid >= before+state.Raised, "restored by %d: zxid 0x%x, after 0x%x before", by,
			made.Zxid, before)
		if by != lead {
			must.That(t, made.Ended != 0, "restored by %d: no session ended", by)
		}
		must.Equal(t, made.Nodes, 4+60, "restored by %d: made.Nodes", by)
		if expect.Fails(t, staged, "a snapshot during a restore") {
			expect.Has(t, staged.Error(), "restore is under way")
		}
		c.restored(resets, made.Zxid, old)
		eventually(t, "the leader waits for no session that is gone", func() bool {
			l := c.leader()
			return l != 0 && len(c.nodes[l].Deadlines()) == 0
		})
	}
	// After a restart the servers have the restored state, from the log or from a snapshot.
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
	expect.That(t, c.nodes[1].Zxid() >= zxid, "after a restart server 1 is at zxid 0x%x, want 0x%x or later",
		c.nodes[1].Zxid(), zxid)
	expect.That(t, c.has(1, "/old1"), "after a restart server 1 lacks a node of the backup")
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
	must.Equal(t, made.Sessions, 1, "sessions that go on")
	must.Equal(t, made.Ended, 0, "sessions that ended")
	must.That(t, c.has(lead, "/old2"), "an ephemeral node of a session that goes on is missing")
	left := c.nodes[c.mustLead()].Deadlines()
	expect.Equal(t, len(left), 1, "sessions with a deadline")
	expect.That(t, left[s.ID] > 0, "the session has no time left: %v", left)
	r := state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/late", 0)}
	expect.That(t, must.Get(propose(c.nodes[lead], r))(t).Refused, "a write of a connection that was cut")
	body := state.SessionBody{Timeout: 30000, Password: s.Password, Owner: 1, Addr: "127.0.0.1"}
	o, err := propose(c.nodes[lead], state.Request{Op: state.OpAttach, Session: s.ID, Body: body.Append(nil)})
	must.OK(t, err)
	expect.Equal(t, o.Code, jute.OK, "the session is attached to a connection")
	expect.That(t, o.Session.Gen > s.Gen, "the session still has generation %d", o.Session.Gen)
}

// If the leader dies during a restore, the restore takes longer and succeeds.
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

// A server that was away gets the restore from the log. A server that restarts during a restore begins it
// again.
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
		c.start(away) // its log has half of the backup
		eventually(t, "it serves", c.seen[away].serving.Load)
		stop(t, c.nodes[away])
	}), int64(len(backup)), false)
	must.OK(t, err)
	c.start(away)
	eventually(t, "it serves", c.seen[away].serving.Load)
	resets[away] = 0
	c.restored(resets, made.Zxid, old)
}

// A restore that fails leaves nothing behind, whatever made it fail.
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
		"a file that cannot be read": {t.Context(), io.MultiReader(bytes.NewReader(backup[:100]),
			iotest.ErrReader(torn)), "torn"},
		"a changed byte":             {t.Context(), bytes.NewReader(bad), "damaged"},
		"somebody who does not wait": {stopped, most(backup, stopNow), "nothing was changed"},
		"something that is no backup": {t.Context(), strings.NewReader(strings.Repeat("x", len(backup))),
			"not a snapshot"},
	} {
		_, err := c.nodes[by].Restore(x.ctx, x.r, int64(len(backup)), false)
		if expect.Fails(t, err, "%s", name) {
			expect.Has(t, err.Error(), x.want, "%s", name)
		}
		eventually(t, "the place is closed", func() bool { return !c.open(lead) && !c.open(by) })
	}
	// During a restore no server begins another one.
	_, err := c.nodes[by].Restore(t.Context(), io.MultiReader(most(backup[:len(backup)-10], func() {
		for id := 1; id <= 3; id++ {
			_, err := c.nodes[id].Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)), false)
			if expect.Fails(t, err, "a second restore at server %d", id) {
				expect.Has(t, err.Error(), restore.ErrRestoring.Error())
			}
		}
	}), iotest.ErrReader(torn)), int64(len(backup)), false)
	expect.Is(t, err, torn)
	// A server ends during its restore. When it starts again, the restore is given up.
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := c.nodes[by].Restore(ctx, most(backup, func() { close(began); <-ctx.Done() }),
			int64(len(backup)), false)
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

// A leader may give up sending a snapshot and send it again. If the first copy arrives after the follower
// has acknowledged newer entries, the follower keeps these entries.
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
	must.OK(t, err)
	must.Equal(t, len(list), 1, "snapshots")
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
	if expect.OK(t, err, "the late snapshot") {
		expect.That(t, resp.Success, "the answer to the late snapshot: %+v", resp)
	}
	expect.That(t, c.has(behind, "/after"), "the follower has lost a node")
	expect.That(t, to.fsm.Index() >= index, "the follower has gone back to entry %d, from %d", to.fsm.Index(),
		index)
	end, err := to.disk.Log().LastIndex()
	expect.OK(t, err)
	expect.That(t, end >= last, "the follower's log ends at entry %d, and it ended at %d", end, last)
	c.create(behind, "/goes-on")
	c.sameDigest()
}
