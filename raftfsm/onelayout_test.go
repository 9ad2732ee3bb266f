package raftfsm

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

const (
	ofCurator = "/l/_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-0000000001"
	ofKazoo   = "/l/f65a711639a74cab9e5222dd97208501__lock__0000000002"
)

// The cluster refuses contenders of another layout once each server has said that it can refuse them. The
// next leader refuses them without asking again, even if one of the servers is gone.
func TestOneLayoutNeedsEveryServerOnce(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, func(o *Options) { o.OneLayout = true })
	lead := c.mustLead()
	eventually(t, "all have said that they know it", c.nodes[lead].fsm.HasTickets)
	a := newAsker(t, c.nodes[lead%3+1])
	must.Equal(t, a.create("/l"), jute.OK)
	ephemeral := func(a *asker, path string) jute.ErrCode {
		return a.do(jute.OpCreate, createBody(path, jute.FlagEphemeral))
	}
	must.Equal(t, ephemeral(a, ofCurator), jute.OK)
	eventually(t, "a contender of kazoo's is refused", func() bool {
		defer a.remove(ofKazoo) // for some time the create still succeeds: remove its node, and try again
		return ephemeral(a, ofKazoo) == jute.NoAuth
	})
	stop(t, c.nodes[lead])
	next := c.mustLead()
	a = newAsker(t, c.nodes[next])
	eventually(t, "the new leader refuses it", func() bool { return ephemeral(a, ofKazoo) == jute.NoAuth })
	expect.Equal(t, c.nodes[next].Status().LayoutWaits, "")
}

// An entry with the option OneLayout stops release 0.1.0, which takes it for an entry of an unknown kind.
func TestOneLayoutIsRefusedByTheFirstRelease(t *testing.T) {
	t.Parallel()
	entry := entries.Begin(nil, entries.OneLayout)
	const kinds = 0x0f // the bits that hold the kind in release 0.1.0, which knows the kinds 1 and 2
	expect.That(t, entry[1]&kinds > 2, "kind %d", entry[1]&kinds)
}
