package leading

import (
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
)

// oneLayout says whether the entries of a term carry entries.OneLayout. Release 0.1.0 cannot read such
// entries. So the term waits until the cluster may have tickets: by then every member has said that it runs a
// later release. The state remembers that, so that the next leader need not ask.
type oneLayout struct {
	on  atomic.Bool
	why atomic.Pointer[string] // why `on` is false although Options.OneLayout is true; nil: nothing is wrong
}

// begin() asks the members whether they understand OneLayout, unless the state already has their answer. The
// term has applied all earlier entries by now.
func (l *oneLayout) begin(t *Term) {
	if !t.o.OneLayout {
		return
	}
	if t.o.State.HasTickets() {
		l.on.Store(true)
		return
	}
	t.o.Go(func() {
		for more := true; more; more = signal.Pause(t.ctx, time.Second) {
			err := t.AllowTickets(t.ctx)
			if err == nil {
				l.why.Store(nil)
				l.on.Store(true)
				return
			}
			why := err.Error()
			if old := l.why.Swap(&why); t.ctx.Err() == nil && (old == nil || *old != why) {
				t.o.Log.Warn("--one-layout has no effect yet: several layouts are still accepted", "reason", why)
			}
		}
	})
}

// waits() returns why Options.OneLayout has no effect yet. It returns "" if the option has its effect.
func (l *oneLayout) waits() string {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return ""
}

// LayoutWaits returns why Options.OneLayout has no effect yet. It returns "" if the option has its effect.
func (t *Term) LayoutWaits() string { return t.layout.waits() }
