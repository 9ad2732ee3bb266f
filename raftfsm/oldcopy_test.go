package raftfsm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// backUp stops a server, copies its data directory and starts it again.
func (c *trio) backUp(id int) (copied string) {
	stop(c.t, c.nodes[id])
	copied = filepath.Join(c.t.TempDir(), "copy")
	c.copyData(copied, c.opts[id].DataDir)
	c.start(id)
	eventually(c.t, "it serves again", c.seen[id].serving.Load)
	return copied
}

func (c *trio) copyData(to, from string) {
	c.t.Helper()
	must.OK(c.t, os.RemoveAll(to))
	must.OK(c.t, os.CopyFS(to, os.DirFS(from)))
}

// knows waits until a server has noted how often another was started.
func (c *trio) knows(witness, id int, starts uint64) {
	eventually(c.t, "it is known how often the server was started", func() bool {
		return c.nodes[witness].promises.of(c.nodes[id].disk.Identity().Incarnation).Start >= starts
	})
}

// The backup that the manual describes, put back after more was acknowledged:
// while others run who have seen the server since, it is refused at once.
func TestR6OldCopyOfTheSameTermIsRefused(t *testing.T) {
	c := newTrio(t, true, nil)
	lead := c.leader()
	b := lead%3 + 1
	copied := c.backUp(b)
	c.knows(lead, b, 2)
	stop(t, c.nodes[b])
	c.copyData(c.opts[b].DataDir, copied)
	o := c.opts[b]
	o.Logger = quietLog(t, o.ID)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	n, err := Start(ctx, o)
	if err == nil {
		n.Abort()
	}
	must.That(t, err != nil && strings.Contains(err.Error(), "old copy"),
		"start from an old copy: %v", err)
}

// As above, but whoever could say so is away when the server starts. The one
// that comes back must not be given a vote by it: together they lack a write
// that was acknowledged.
func TestR6OldCopyDoesNotVote(t *testing.T) {
	for range 10 {
		done := false
		if !t.Run("", func(t *testing.T) { done = oldCopyDoesNotVote(t) }) || done {
			return
		}
	}
	t.Fatal("leadership moved each time")
}

// oldCopyDoesNotVote reports false if leadership moved, so that nothing was tried.
func oldCopyDoesNotVote(t *testing.T) bool {
	c := newTrio(t, true, nil)
	a := c.leader()
	b, d := a%3+1, (a+1)%3+1
	copied := c.backUp(b)
	c.knows(d, b, 2)
	stop(t, c.nodes[d])
	if c.leader() != a {
		return false
	}
	c.create(a, "/kept") // on a and b
	stop(t, c.nodes[b])
	c.nodes[a].Abort()
	c.copyData(c.opts[b].DataDir, copied)
	died := make(chan error, 1)
	c.opts[b].Fatal = func(err error) { died <- err }
	c.start(b)
	c.start(d)
	select {
	case err := <-died:
		expect.Has(t, err.Error(), "old copy", "it ended because %v", err)
	case <-time.After(20 * time.Second):
		t.Error("the old copy was not noticed")
	}
	c.nodes[b].Abort()
	must.Equal(t, c.leader(), 0, "somebody leads without the write")
	c.start(a)
	eventually(t, "serving", func() bool { return c.seen[a].serving.Load() && c.seen[d].serving.Load() })
	expect.That(t, c.has(d, "/kept"), "an acknowledged write is lost")
	return true
}

func TestR6DirectoryThatIsBehindWhatItHasShown(t *testing.T) {
	shown := peer.Shown{Start: 3, Life: "c", Term: 5, Index: 100}
	for _, tc := range []struct {
		name string
		now  peer.Shown
		end  uint64
		old  bool
	}{
		{"the same life", shown, 100, false},
		{"the same life, by a word that was overtaken", peer.Shown{Start: 3, Life: "c", Term: 4, Index: 90}, 90,
			false},
		{"the next life", peer.Shown{Start: 4, Life: "d", Term: 5}, 100, false},
		{"a copy of the life before", peer.Shown{Start: 3, Life: "x", Term: 5}, 100, true},
		{"a copy of an earlier life", peer.Shown{Start: 2, Life: "x", Term: 5}, 100, true},
		{"a copy made while it ran: the term", peer.Shown{Start: 4, Life: "d", Term: 4}, 100, true},
		{"a copy made while it ran: the log", peer.Shown{Start: 4, Life: "d", Term: 5}, 99, true},
	} {
		expect.Equal(t, tc.now.Behind(shown, tc.end) != "", tc.old, "%s", tc.name)
	}
	expect.Equal(t, shown.Behind(peer.Shown{}, 0), "", "behind one who knows nothing")
}

// A start that is refused for a damaged file has not been announced: with the
// good file back, the directory as it was before serves, and is no old copy.
func TestR6RefusedStartIsNotAnnounced(t *testing.T) {
	c := newTrio(t, true, nil)
	b := c.leader()%3 + 1
	must.OK(t, c.nodes[b].Snapshot())
	stop(t, c.nodes[b])
	dir := c.opts[b].DataDir
	good := t.TempDir()
	c.copyData(good, dir)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snap"))
	must.That(t, err == nil && len(files) != 0, "no snapshot %v", err)
	for _, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		data[len(data)/4] ^= 1
		must.OK(t, os.WriteFile(file, data, 0o600))
	}
	o := c.opts[b]
	o.Logger, o.Fatal = quietLog(t, o.ID), func(error) {}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if n, err := Start(ctx, o); err == nil {
		n.Abort()
		t.Fatal("the damage is not noticed")
	}
	c.copyData(dir, good)
	c.start(b)
	eventually(t, "it serves again", c.seen[b].serving.Load)
}
