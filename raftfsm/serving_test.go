package raftfsm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// ended() returns a server whose raft has ended. It knows no leader, and its state changes only by the test's
// entries.
func ended(t *testing.T, o Options) *Node {
	t.Helper()
	r := new(watcher)
	o.Observer, o.Logger, o.Fatal = r, quietLog(t, 1), func(err error) { t.Error(err) }
	n := must.Get(Start(t.Context(), o))(t)
	newAsker(t, n)
	var file bytes.Buffer
	b := must.Get(n.Backup(t.Context()))(t)
	must.OK(t, b.Write(&file))
	b.Close()
	n.Abort()
	a := applied.With(apply.Options{ID: 1, Cluster: n.disk.Identity().Cluster, Observer: r})
	must.OK(t, a.Restore(io.NopCloser(&file)))
	a.Stream.Open(n.fsm.Stream.Birth())
	n.fsm = a.FSM
	return n
}

// A server is current if it has applied all that any server has answered. Its leader must confirm that.
// Otherwise Current returns an error.
func TestCurrentServerHasAppliedWhatOthersAnswered(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	for id := 1; id <= 3; id++ {
		path := fmt.Sprint("/n", id)
		c.create(id%3+1, path)
		eventually(t, "it serves", func() bool { ok, _ := c.nodes[id].Serving(); return ok })
		expect.OK(t, c.nodes[id].Current(t.Context()), "server %d", id)
		expect.That(t, c.has(id, path), "server %d is current without %s", id, path)
	}
	for id := 1; id <= 3; id++ {
		if id != lead {
			stop(t, c.nodes[id])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.nodes[lead].Current(ctx)
	expect.That(t, status.Of(err).Passes(), "a server without a majority: %v", err)
}
