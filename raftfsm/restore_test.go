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
	"time"

	"github.com/zlockd/zlockd/jute"
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
		must.Equal(c.t, must.Get(propose(c.nodes[id], r))(c.t).Code, jute.OK, "create")
	}
	return s
}

func backupOf(t testing.TB, n *Node) []byte {
	t.Helper()
	b, err := n.Backup(t.Context())
	must.OK(t, err)
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

// restored checks that every server that runs has the state of the backup and
// has cut its clients off.
func (c *trio) restored(resets [4]int, zxid int64, old session.Session) {
	c.t.Helper()
	c.sameDigest()
	for id := 1; id <= 3; id++ {
		if c.nodes[id].closed.Load() {
			continue
		}
		if !c.has(id, "/old1") || c.has(id, "/new1") || c.has(id, "/old2") || c.nodes[id].Zxid() < zxid {
			c.t.Errorf("server %d has not the state of the backup", id)
		}
		expect.That(c.t, c.seen[id].resetCount() > resets[id],
			"server %d has not cut its clients off", id)
		c.nodes[id].View(func(s *state.State) {
			if _, there := s.Sessions().Get(old.ID); there || s.Sessions().Len() != 0 {
				c.t.Errorf("server %d has %d sessions", id, s.Sessions().Len())
			}
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
	c := newTrio(t, true, nil)
	lead := c.leader()
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
		if err != nil || made.Zxid < before+state.Raised || made.Ended == 0 && by != lead || made.Nodes != 4+60 {
			t.Fatalf("restored by %d: %+v %v", by, made, err)
		}
		expect.That(t, staged != nil && strings.Contains(staged.Error(), "restore is under way"),
			"a snapshot without what is kept beside the state: %v", staged)
		c.restored(resets, made.Zxid, old)
		eventually(t, "the leader waits for no session that is gone", func() bool {
			l := c.leader()
			return l != 0 && len(c.nodes[l].Deadlines()) == 0
		})
	}
	// What was restored is there after a restart, from the log and from a snapshot.
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
	expect.That(t, c.nodes[1].Zxid() >= zxid && c.has(1, "/old1"), "lost by the restart")
	c.fill(1, "/then", 3)
}

func TestSessionsOfABackupGoOn(t *testing.T) {
	c := newTrio(t, false, nil)
	lead := c.leader()
	s := c.fill(lead, "/old", 3)
	backup := backupOf(t, c.nodes[lead])
	made, err := c.nodes[lead].Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)), true)
	must.That(t, err == nil && made.Sessions == 1 && made.Ended == 0 && c.has(lead, "/old2"),
		"%+v %v", made, err)
	left := c.nodes[c.leader()].Deadlines()
	expect.That(t, len(left) == 1 && left[s.ID] > 0, "deadlines %v", left)
	r := state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/late", 0)}
	expect.That(t, must.Get(propose(c.nodes[lead], r))(t).Refused, "a write of a connection that was cut")
	body := state.SessionBody{Timeout: 30000, Password: s.Password, Owner: 1, Addr: "127.0.0.1"}
	if o, err := propose(c.nodes[lead], state.Request{Op: state.OpAttach, Session: s.ID, Body: body.Append(nil)}); err != nil || o.Code != jute.OK || o.Session.Gen <= s.Gen {
		t.Errorf("attach: %+v %v", o, err)
	}
}

// A leader that dies in the middle holds the restore up, and nothing more.
func TestRestoreOutlivesTheLeader(t *testing.T) {
	c := newTrio(t, true, nil)
	lead := c.leader()
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

// A server that was away is told by the log; one that is restarted in the middle
// begins the restore again.
func TestRestoreAndServersThatCome(t *testing.T) {
	c := newTrio(t, true, nil)
	lead := c.leader()
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

// Whoever brings a backup and fails leaves nothing behind.
func TestRestoreThatFailsLeavesNothing(t *testing.T) {
	c := newTrio(t, true, func(o *Options) { o.MaxNodes = 1000 })
	lead := c.leader()
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
	// While there is one, nobody else begins another, here or there.
	_, err := c.nodes[by].Restore(t.Context(), io.MultiReader(most(backup[:len(backup)-10], func() {
		for id := 1; id <= 3; id++ {
			if _, err := c.nodes[id].Restore(t.Context(), bytes.NewReader(backup), int64(len(backup)), false); err == nil || !strings.Contains(err.Error(), ErrRestoring.Error()) {
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
	must.That(t, c.open(lead), "nothing was open; the test tests nothing")
	c.start(by)
	eventually(t, "the place is closed", func() bool { return !c.open(lead) && !c.open(by) })
	expect.Equal(t, digest(), before, "something has changed")
	expect.Fails(t, c.nodes[by].Fits(1001, 0), "more nodes than are allowed")
}

func (c *trio) open(id int) (open bool) {
	c.nodes[id].View(func(s *state.State) { _, _, open = s.Staged() })
	return open
}

// A restore that nobody goes on with is given up by the leader.
func TestAbandonedRestoreIsGivenUp(t *testing.T) {
	n, _ := start(t, Options{ID: 1})
	eventually(t, "it leads", func() bool { return n.term.Load() != nil && n.fsm.stream.birthNow() != 0 })
	g := state.Staging{ID: 5, Origin: 1, Birth: n.fsm.stream.birthNow(), Size: 10}
	must.Equal(t, must.Get(propose(n, g.Open()))(t).Code, jute.OK)
	open := func() (open bool) {
		n.View(func(s *state.State) { _, _, open = s.Staged() })
		return open
	}
	var a abandoned
	a.look(n.term.Load())
	a.look(n.term.Load())
	expect.That(t, open(), "given up at once")
	a.since = time.Now().Add(-restoreSilence - time.Second)
	a.look(n.term.Load())
	eventually(t, "given up", func() bool { return !open() })
}
