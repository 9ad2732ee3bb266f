package raftfsm

import (
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
)

// oneLayout is whether the entries of a term have state.OneLayout. Release 0.1.0 cannot read those, so the
// term waits until the cluster may have tickets, which is after every member has said that it runs a later
// release. The state remembers that: the next leader asks no server.
type oneLayout struct {
	on  atomic.Bool
	why atomic.Pointer[string] // it is not on although Options.OneLayout is; nil: nothing is wrong
}

// begin asks the members, if one is still to be asked. The term's state has all that was ever answered.
func (l *oneLayout) begin(t *term) {
	if !t.n.o.OneLayout {
		return
	}
	if t.n.hasTickets() {
		l.on.Store(true)
		return
	}
	t.n.wg.Go(func() {
		for more := true; more; more = signal.Pause(t.ctx, time.Second) {
			err := t.n.AllowTickets(t.ctx)
			if err == nil {
				l.why.Store(nil)
				l.on.Store(true)
				return
			}
			why := err.Error()
			if old := l.why.Swap(&why); t.ctx.Err() == nil && (old == nil || *old != why) {
				t.n.log.Warn("--one-layout waits: contenders of several layouts are still taken", "reason", why)
			}
		}
	})
}

// waits says why a setting of this server has no effect yet; empty: it has.
func (l *oneLayout) waits() string {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return ""
}
