package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
)

// waitTeller tells the user which client holds the lock that zlock waits for: after a second, and again when
// the holder or zlock's place has changed, but not often. The client knows the queue, so waitTeller reads
// only the holder's node.
type waitTeller struct {
	cl     *client.Client
	line   *call.StatusLine
	quiet  bool
	events chan client.Event
	told   client.Event // the last reported event
}

// Times of waitTeller.
const (
	tellAfter = time.Second
	tellEvery = 10 * time.Second
	// tellRefusal is how long waitTeller waits for the client's last event, which names the holder, when the
	// lock was refused.
	tellRefusal = 2 * time.Second
	tellRead    = 5 * time.Second
)

// farPlace is the farthest place in the queue from which waitTeller reports each new place. Farther back, the
// place changes too often.
const farPlace = 20

func newWaitTeller(a *call.App, cl *client.Client, quiet bool) *waitTeller {
	return &waitTeller{cl: cl, line: call.NewStatusLine(a), quiet: quiet, events: make(chan client.Event, 1)}
}

// option() makes the client pass its events to waitTeller. Only the newest event is kept.
func (t *waitTeller) option() client.Option {
	return client.WithEvents(func(ev client.Event) {
		if ev.Kind != client.EventWaiting {
			return
		}
		select {
		case <-t.events:
		default:
		}
		t.events <- ev
	})
}

// during() calls take(), which waits for a lock. While take() waits, during() reports the holder.
func (t *waitTeller) during(ctx context.Context, refusal int, take func() error) error {
	if t.quiet {
		return take()
	}
	stop, stopped := make(chan struct{}), make(chan client.Event, 1)
	go func() { stopped <- t.tell(ctx, stop) }()
	err := take()
	close(stop)
	last := <-stopped
	t.line.Clear()
	if e, ok := errors.AsType[*cli.ExitError](err); ok && e.Code == refusal && e.Err == nil {
		t.refused(ctx, last)
	}
	return err
}

// tell() reports the events until `stop` is closed, and returns the newest event.
func (t *waitTeller) tell(ctx context.Context, stop <-chan struct{}) (last client.Event) {
	due := time.After(tellAfter)
	for ready := false; ; {
		select {
		case <-stop:
			return last
		case last = <-t.events:
		case <-due:
			ready = true
		}
		if ready && t.news(last) {
			t.say(ctx, last)
			ready, due = false, time.After(tellEvery)
		}
	}
}

// news() reports whether an event is worth a new line.
func (t *waitTeller) news(ev client.Event) bool {
	return ev.Path != "" && (t.told.Path != ev.Path || ev.Place <= farPlace) &&
		(t.told.Path != ev.Path || t.told.Holder != ev.Holder || t.told.Place != ev.Place || t.told.Of != ev.Of)
}

// refused() reports the holder of the lock that zlock did not get.
func (t *waitTeller) refused(ctx context.Context, last client.Event) {
	select { // an event may still come after the refusal
	case last = <-t.events:
	default:
		if last.Path == "" {
			select {
			case last = <-t.events:
			case <-time.After(tellRefusal):
			}
		}
	}
	if t.news(last) {
		t.say(context.WithoutCancel(ctx), last)
		t.line.End()
	}
}

// say() reads the holder and writes the line.
func (t *waitTeller) say(ctx context.Context, ev client.Event) {
	t.told = ev
	if ev.Holder != "" {
		ctx, cancel := context.WithTimeout(ctx, tellRead)
		defer cancel()
		if h, err := t.cl.Inspector().Contender(ctx, ev.Holder); err == nil {
			t.line.News(call.WaitText(ev.Path, holderText(h), "", ev.Place, ev.Of))
			return
		}
	}
	t.line.News(call.WaitText(ev.Path, "", "", ev.Place, ev.Of))
}

// holderText describes a holder: its name, since when it holds, and its reason.
func holderText(h recipe.Entry) string {
	text := call.HostOf(h)
	if o := h.Owner; o != nil && o.PID != 0 {
		text += fmt.Sprintf(" pid %d", o.PID)
	}
	reason := ""
	if o := h.Owner; o != nil {
		reason = o.Reason
	}
	return text + call.SinceWhy(max(h.Since, h.HeldSince), reason)
}

var errTimeout = errors.New("not acquired in time")

// waiting() runs f() within the time `limit`; 0 means no limit. If the time is over, the error has the exit
// code `code`. If ctx ends, the error is its cause.
func waiting(ctx context.Context, limit time.Duration, code int, f func(context.Context) error) error {
	bounded, cancel := ctx, func() {}
	if limit > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
	}
	defer cancel()
	err := f(bounded)
	lost, isLost := errors.AsType[*client.LostError](err)
	switch {
	case err == nil:
		return nil
	case isLost && lost.Reason == client.Revoked: // another client asked for the lock while zlock waited for it
		return cli.Exitf(call.ExitRevoked, "%w", err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bounded.Err() != nil && (errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded)):
		return &cli.ExitError{Code: code} // not cli.Exit: it returns nil if the user chose the code 0
	}
	return err
}

// patience() returns how long zlock waits: for a lock or a draw as -n and -w say, and for the answer to a
// request as `answer` says.
func (f *lockFlags) patience(answer time.Duration, quiet bool) ticket.Patience {
	p := ticket.Patience{Answer: answer, Quiet: quiet}
	if f.nonblock || f.fs.Changed("timeout") {
		p.End = time.Now().Add(f.timeout)
	}
	return p
}
