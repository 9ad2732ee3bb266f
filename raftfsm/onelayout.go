package raftfsm

import (
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
)

// oneLayout says whether the entries of a term carry state.OneLayout. Release 0.1.0 cannot read such entries.
// So the term waits until the cluster may have tickets: every member has said then that it runs a later
// release. The state remembers that, so that the next leader need not ask.
type oneLayout struct {
	on  atomic.Bool
	why atomic.Pointer[string] // why it is off although Options.OneLayout is on; nil: nothing is wrong
}

// begin asks the members, unless the state already has their answer. The term has applied all earlier entries
// by now.
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
				t.n.log.Warn("--one-layout waits: several layouts are still accepted", "reason", why)
			}
		}
	})
}

// waits returns why a setting of this server has no effect yet, empty if it has.
func (l *oneLayout) waits() string {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return ""
}
