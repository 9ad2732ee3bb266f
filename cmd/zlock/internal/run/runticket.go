//go:build !windows

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	"github.com/zlockd/zlockd/cmd/zlock/internal/connect"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
	"github.com/zlockd/zlockd/cmd/zlock/internal/ticket"
)

// ticketHold is a ticket's hold of its lock while COMMAND runs. zlock renews the ticket, but need not end it.
type ticketHold struct {
	*ticket.Asker
	now    func() reading
	token  string
	margin time.Duration // zlock treats the hold as lost this long before its end, to end COMMAND in time
	asked  chan string   // messages about clients that ask for the lock; has room for one
	lost   chan struct{} // closed when the hold is lost

	mu    sync.Mutex
	sent  reading       // when zlock sent the last request that a server answered
	lasts time.Duration // how long after `sent` the hold counts as held
	last  error         // error of the last request
	err   error         // why the hold is lost
	told  bool          // COMMAND was told that a client asks for the lock
}

// runByTicket runs COMMAND under the hold of a ticket.
func runByTicket(c *call.Call, t *ticket.Flags, give bool, lock *lockFlags, run *runFlags,
	conn *connect.Flags) error {
	if err := run.only("ticket-file", "http", "http-ca", "bearer-file", "give", "nonblock", "timeout",
		"conflict-exit-code", "command", "on-lost", "kill-after", "on-revoke", "foreground", "contain", "leave",
		"ready-fd", "quiet", "connect-timeout"); err != nil {
		return err
	}
	if err := lock.check(); err != nil {
		return err
	}
	if len(c.Args) > 1 {
		return cli.Usagef("a ticket has only one PATH")
	}
	t.Timeout = conn.ConnectTimeout
	k, err := t.One(c, false)
	if err != nil {
		return err
	}
	j := &job{Call: c, flags: run, conn: conn, task: taskOf(c.Getenv)}
	if j.Loss, err = run.loss(lock.killAfter, false); err != nil {
		return err
	}
	j.Nested = supervise.GraceWithin(c.Getenv("ZLOCK_GRACE"))
	if err = j.startGuard(); err != nil {
		return err
	}
	defer j.end()
	go supervise.Reap()
	j.ctx, j.stop = call.Interruptible()
	h := &ticketHold{Asker: k, now: readClocks, asked: make(chan string, 1), lost: make(chan struct{})}
	if j.servers, _, err = conn.Address(c.Getenv); err != nil {
		return err
	}
	if j.exe, err = findExecutable(c.Dashed, run.shell); err != nil {
		h.endsWithout(c, t, give)
		return err
	}
	if j.OnLost != 0 {
		h.margin = lock.killAfter
	}
	a, err := h.await(j, t, lock)
	if err != nil {
		return err
	}
	of, err := fence.ParseSequencer(a.Sequence)
	if err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	sigs := supervise.ListenForCommand() // from now on signals are for COMMAND
	j.stop()
	if err := call.Interrupted(j.ctx); err != nil {
		signal.Stop(sigs)
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var renewed sync.WaitGroup
	renewed.Go(func() { h.keep(ctx) })
	r := supervise.Right{Lost: h.lost, Err: h.Err, Until: h.Until, Code: func() int { return call.ExitLost },
		Asked: h.asked, AskedCode: call.ExitRevoked}
	out, err := j.supervise(r, []fence.Sequencer{of}, a.Slots, sigs)
	stop()
	renewed.Wait()
	code := cmp.Or(out.Right, out.Code)
	switch {
	case err != nil:
		h.endsWithout(c, t, give)
	case out.Right == call.ExitLost:
	case h.lostLately(c):
		code = call.ExitLost
	case give:
		code = h.giveBack(c, t, code)
	}
	return cmp.Or(err, j.endOf(&out, code))
}

// await() waits until the ticket holds its lock, and returns the answer that says so.
func (h *ticketHold) await(j *job, t *ticket.Flags, lock *lockFlags) (*ticket.Answer, error) {
	var sent reading
	send := func(ctx context.Context, wait time.Duration) (*ticket.Answer, error) {
		sent = h.now()
		return h.post(ctx, wait)
	}
	a, err := lock.patience(t.Timeout, j.conn.Quiet).Await(j.ctx, j.Call, send, h.WaitsFor)
	switch {
	case context.Cause(j.ctx) != nil:
		return nil, context.Cause(j.ctx)
	case err != nil:
		return nil, &cli.ExitError{Code: call.ExitNoSession, Err: err}
	case a.Over():
		return nil, &cli.ExitError{Code: call.ExitLost, Err: ticket.OverText(a)}
	case a.Code >= http.StatusBadRequest:
		return nil, ticket.OverOr(a)
	case !a.Held:
		return nil, &cli.ExitError{Code: lock.conflict}
	}
	h.token = a.Token
	if err := h.lastsFor(a); err != nil {
		return nil, err
	}
	h.renewed(a, sent)
	return a, nil
}

// lastsFor returns an error if the ticket is so short that zlock could not end COMMAND before its end.
func (h *ticketHold) lastsFor(a *ticket.Answer) error {
	safe, ttl := time.Duration(a.Safe)*time.Millisecond, time.Duration(a.TTL)*time.Millisecond
	switch {
	case safe >= h.margin+time.Second:
		return nil
	case safe < ttl/2: // its time would be long enough, but its end (--until) is near
		return cli.Exitf(call.ExitLost, "the ticket ends in %v: that is too soon for --kill-after %v",
			safe, h.margin)
	}
	return cli.Usagef("a ticket of %v is too short: with --kill-after %v, COMMAND may still run when it "+
		"ends; 'zlock take' it with a longer --ttl, or give a shorter --kill-after", ttl, h.margin)
}

// post() sends a request about the ticket, which also renews it. It never opens a new ticket.
func (h *ticketHold) post(ctx context.Context, wait time.Duration) (*ticket.Answer, error) {
	q := url.Values{"wait": {wait.String()}}
	return h.Ask(ctx, http.MethodPost, ticket.LockPath(h.Path), q, map[string]string{"If-Match": "*"})
}

// renewEvery bounds the time between two requests that renew the ticket.
const renewEvery = 10 * time.Second

// keep() renews the ticket until ctx ends or the hold is lost.
func (h *ticketHold) keep(ctx context.Context) {
	for ctx.Err() == nil {
		left := h.left()
		if left <= 0 {
			h.lose(cmp.Or(h.last, errTicketTime))
			return
		}
		// Wait only a third of the time that is left: if this server hangs, zlock can ask another one.
		try, cancel := context.WithTimeout(ctx, max(left/3, 200*time.Millisecond))
		sent := h.now()
		a, err := h.post(try, 0)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			h.last = fmt.Errorf("no server has renewed the ticket: %w", err)
			h.URLs = append(slices.Clone(h.URLs[1:]), h.URLs[0]) // begin with another server, as this one may hang
			continue
		case a.Over():
			h.lose(ticket.OverText(a))
			return
		case a.Code >= http.StatusBadRequest:
			h.last = fmt.Errorf("no server has renewed the ticket: %s", a.Text)
		case !a.Held || a.Token != h.token:
			h.lose(errors.New("the ticket no longer holds the lock"))
			return
		default:
			h.last = nil
			h.renewed(a, sent)
		}
		// Sleep in small steps, because a timer stops while the machine sleeps.
		until := h.left() - min(max(h.left()/3, 100*time.Millisecond), renewEvery)
		for rest := h.left() - until; rest > 0 && ctx.Err() == nil; rest = h.left() - until {
			_ = call.Sleep(ctx, min(rest, time.Second))
		}
	}
}

// renewed() records that a request, sent at the time `sent`, has renewed the ticket.
func (h *ticketHold) renewed(a *ticket.Answer, sent reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent, h.lasts = sent, time.Duration(a.Safe)*time.Millisecond-h.margin
	if a.Asked != nil && !h.told {
		h.told = true
		h.asked <- requestText(h.Path, recipe.Revocation{By: a.Asked.By, Reason: a.Asked.Reason})
	}
}

func (h *ticketHold) lose(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = why
	close(h.lost)
}

// Err returns why the hold is lost. It returns nil while the hold lasts.
func (h *ticketHold) Err() error {
	left := h.left()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && left <= 0 {
		return errTicketTime
	}
	return h.err
}

var errTicketTime = errors.New("the ticket's time is over")

// left() returns how long the hold still lasts without another renewal.
func (h *ticketHold) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lasts - h.now().since(h.sent)
}

// Until returns the end of the hold as a time.
func (h *ticketHold) Until() time.Time { return time.Now().Add(h.left()) }

// reading is a reading of two clocks. Both run while the machine sleeps, and the wall clock also while a host
// pauses the virtual machine.
type reading struct {
	boot time.Duration
	wall time.Time
}

func readClocks() reading { return reading{supervise.BootClock(), time.Now().Round(0)} }

// since() returns the time from `a` to `b`. It takes the clock that shows more, because the other may have
// been set back.
func (b reading) since(a reading) time.Duration { return max(b.boot-a.boot, b.wall.Sub(a.wall)) }

// lostLately is called after COMMAND's end. It asks the server whether another client has ended the hold
// before that. If no server answers, the hold counts as held, because the ticket's time is not over.
func (h *ticketHold) lostLately(c *call.Call) bool {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	switch a, err := h.post(ctx, 0); {
	case err != nil || a.Held && a.Token == h.token:
		return false
	case a.Over():
		c.Say("%v", ticket.OverText(a))
	case a.Code >= http.StatusBadRequest:
		return false
	default:
		c.Say("the ticket no longer holds the lock")
	}
	return true
}

// endsWithout is called if COMMAND could not start. It gives the ticket back if `give` is true.
func (h *ticketHold) endsWithout(c *call.Call, t *ticket.Flags, give bool) {
	if give {
		h.giveBack(c, t, 0)
	}
}

// giveBack gives the ticket back, and returns the exit code.
func (h *ticketHold) giveBack(c *call.Call, t *ticket.Flags, code int) int {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	a, err := h.Ask(ctx, http.MethodDelete, ticket.LockPath(h.Path), url.Values{}, nil)
	switch {
	case err == nil && (a.Code == http.StatusNoContent || a.Error == "given"):
	case err == nil && a.Over():
		c.Say("%v", ticket.OverText(a))
		code = call.ExitLost
	default:
		if err == nil {
			err = ticket.OverOr(a)
		}
		c.Say("the ticket was not given back: %v; use 'zlock give'", err)
		return code
	}
	if t.File != "" && t.File != "-" {
		if err := os.Remove(t.File); err != nil {
			c.Say("%v", err)
		}
	}
	return code
}
