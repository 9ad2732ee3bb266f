package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/restore"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/wire"
)

// restores restores backups to the cluster while it runs, with and without the sessions of the backup. In the
// middle of each restore something happens to the cluster.
func (c *cluster) restores() {
	rng := c.near(5, 0, 0)
	meanwhile := []string{"nothing", "leader crashes", "follower crashes", "leader hands over"}
	for _, keep := range []bool{false, true} {
		for _, k := range rng.Perm(len(meanwhile))[:2] {
			(&restoring{c: c, rng: rng, keep: keep, meanwhile: meanwhile[k]}).run()
		}
	}
}

// restorePath is the node below which the clients of a restore work.
const restorePath = "/restored"

// restoring is one restore to a running cluster.
type restoring struct {
	c         *cluster
	rng       *rand.Rand
	keep      bool
	meanwhile string
	by        uint32 // the server that receives the backup
	wg        sync.WaitGroup

	// Two clients have sessions in the backup: one lives on, and the other leaves before the restore. The third
	// comes after the backup.
	lives, leaves, comes *wire.Conn
	zxid                 int64  // the highest zxid that a client has seen before the restore
	sequence             string // the newest sequential node before the restore
}

func (r *restoring) fail(format string, args ...any) {
	r.c.t.Errorf("a restore by server %d, sessions kept: %t, while %s: %s", r.by, r.keep, r.meanwhile,
		fmt.Sprintf(format, args...))
}

// run() makes and judges the restore.
func (r *restoring) run() {
	lead, others := r.c.mustLead()
	r.by = others[r.rng.IntN(2)]
	if r.meanwhile == "nothing" && r.rng.IntN(2) == 0 {
		r.by = lead
	}
	backup := r.prepare(lead)
	if backup == nil {
		return
	}
	file := &interrupted{Reader: bytes.NewReader(backup), do: func() { r.disturb(lead, others) }}
	made, err := r.c.server(r.by).Node().Restore(context.Background(), file, int64(len(backup)), r.keep)
	r.wg.Wait()
	for id := range r.c.ids() {
		r.c.ready(id, 30*time.Second)
	}
	switch {
	case errors.Is(err, restore.ErrNotKnown) && r.meanwhile != "nothing":
		return // the next restore follows all the same
	case err != nil:
		r.fail("%v", err)
		return
	case made.Zxid < r.zxid+state.Raised:
		r.fail("G20: the zxid is %d, after %d before", made.Zxid, r.zxid)
	}
	r.judge(made.Zxid)
	r.c.compare(&r.c.rec.Recorder)
}

// interrupted is a backup. Something happens when it is read.
type interrupted struct {
	io.Reader
	do func()
}

func (i *interrupted) Read(b []byte) (int, error) {
	if i.do != nil {
		i.do()
		i.do = nil
	}
	return i.Reader.Read(b)
}

// disturb begins what happens in the middle of the restore, at a random moment of the next milliseconds.
func (r *restoring) disturb(lead uint32, others []uint32) {
	after := time.Duration(r.rng.Int64N(int64(10*time.Millisecond + 4*r.c.set.latency)))
	victim := lead
	switch r.meanwhile {
	case "nothing":
		return
	case "leader hands over":
		r.wg.Go(func() {
			time.Sleep(after)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = r.c.server(lead).Node().ChangeMember(ctx, change.Change{Op: change.Lead, ID: r.by})
		})
		return
	case "follower crashes":
		for _, id := range others {
			if id != r.by {
				victim = id
			}
		}
	}
	r.wg.Go(func() {
		time.Sleep(after)
		r.c.crash(victim)
		time.Sleep(3 * time.Second)
		r.c.start(victim)
	})
}

// prepare makes the state of the backup, takes the backup, and changes the state. It returns the backup.
func (r *restoring) prepare(lead uint32) []byte {
	c := r.c
	r.lives, r.leaves = c.client("c0", r.by, probeTime), c.client("c1", lead, slowTime)
	must := func(err error) {
		if err != nil {
			r.fail("a client of a cluster that is whole: %v", err)
		}
	}
	create := func(w *wire.Conn, name string, flags int32) string {
		path, err := w.Create(restorePath+name, []byte("old"), flags)
		must(err)
		return path
	}
	if _, err := r.lives.Exists(restorePath, false); err != nil {
		create(r.lives, "", jute.FlagPersistent)
	}
	_ = r.lives.Delete(restorePath+"/data", -1) // of an earlier restore
	create(r.lives, "/data", jute.FlagPersistent)
	create(r.lives, "/released", jute.FlagEphemeral)
	create(r.lives, "/held", jute.FlagEphemeral)
	create(r.leaves, "/left", jute.FlagEphemeral)
	must(r.leaves.Sync(restorePath))
	b := c.takeBackup(c.server(lead), lead, 0)
	if b == nil {
		r.fail("the leader gives no backup")
		return nil
	}
	r.comes = c.client("c2", r.by, probeTime)
	must(r.lives.Delete(restorePath+"/released", -1))
	_, err := r.lives.SetData(restorePath+"/data", []byte("new"), -1)
	must(err)
	_, _, err = r.lives.GetData(restorePath+"/data", true)
	must(err)
	create(r.comes, "/later", jute.FlagEphemeral)
	r.sequence = create(r.comes, "/n-", jute.FlagPersistentSequential)
	must(r.leaves.CloseSession())
	must(r.lives.Sync(restorePath))
	r.zxid = max(r.lives.Zxid, r.comes.Zxid, r.leaves.Zxid)
	return b.file
}

// judge compares what clients find with what the documentation promises. The restore raised the zxid to
// `raised`.
func (r *restoring) judge(raised int64) {
	for _, w := range []*wire.Conn{r.lives, r.comes} {
		if err := w.Closed(); err != nil {
			r.fail("a connection goes on: %v", err)
		}
	}
	if _, err := r.c.attach("c2", r.by, r.comes); !errors.Is(err, wire.ErrRefused) {
		r.fail("G14: the session that came after the backup: %v", err)
	}
	again, err := r.c.attach("c0", r.by, r.lives)
	if r.keep != (err == nil) || !r.keep && !errors.Is(err, wire.ErrRefused) {
		r.fail("G12: the session of the backup whose client lives: %v", err)
	}
	if again != nil {
		defer again.CloseSession()
	}
	w := r.c.client("c1", 1+r.by%3, probeTime)
	defer w.CloseSession()
	if err := w.Sync(restorePath); err != nil {
		r.fail("%v", err)
	}
	if w.Session.ID == r.lives.Session.ID || w.Session.ID == r.comes.Session.ID ||
		w.Session.ID == r.leaves.Session.ID {
		r.fail("G14: session %#x was given twice", w.Session.ID)
	}
	if data, _, err := w.GetData(restorePath+"/data", false); string(data) != "old" {
		r.fail("G6: the data is %q, %v", data, err)
	}
	for _, x := range []struct {
		path string
		want bool
		why  string
	}{
		{"/held", r.keep, "the node of a session that lives"},
		{"/released", false, "the node that its session has deleted since"},
		{"/left", r.keep, "the node of a session that has ended since"},
		{"/later", false, "the node of a session that came after the backup"},
	} {
		if _, err := w.Exists(restorePath+x.path, false); x.want && err != nil || !x.want && err != jute.NoNode {
			r.fail("G12: %s, %s: %v", x.why, x.path, err)
		}
	}
	name, err := w.Create(restorePath+"/n-", nil, jute.FlagEphemeralSequential)
	if err != nil || name <= r.sequence {
		r.fail("G19: a sequential node is %s after %s, %v", name, r.sequence, err)
	}
	if st, err := w.Exists(name, false); err != nil || st.Czxid <= raised-1 {
		r.fail("G20: the token %d is not above the zxid of the restore, %d, %v", st.Czxid, raised, err)
	}
	for id := range r.c.ids() {
		r.c.server(id).Clients.WatchScan(func(path string, session int64) bool {
			r.fail("G16: server %d still has the watch of session %#x on %s", id, session, path)
			return true
		})
	}
	// A session that has returned without its client lives for one timeout.
	time.Sleep(slowTime + slowTime/2)
	if _, err := w.Exists(restorePath+"/left", false); err != jute.NoNode {
		r.fail("G12: the node of a session without a client: %v", err)
	}
}
