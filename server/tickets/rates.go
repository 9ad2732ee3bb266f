package tickets

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/window"
	"github.com/zlockd/zlockd/tree/acl"
)

// lookAgain is how long the first caller in a line waits at most before it looks at the rate again: the node
// of the rate may have been removed.
const lookAgain = time.Second

type drawBody struct {
	V        int   `json:"v"`
	Drawn    bool  `json:"drawn"`
	At       int64 `json:"at"`
	Left     int64 `json:"left"`
	Repeated bool  `json:"repeated,omitempty"`
}

// Draw draws from a rate, and waits until a draw is free. If `secret` is true, the request has a secret, and
// the server recognises a repeated request by it.
func (s *Server) Draw(ctx context.Context, q *Request, secret bool) *Answer {
	off, ok := s.serving(q)
	if !ok {
		return unavailable(errAgain)
	}
	d := &state.Draw{Path: q.Path, Ask: window.Ask{Limit: int64(q.Limit), Per: q.Per.Milliseconds()},
		Identity:   q.Identity.Name,
		RateBounds: state.RateBounds{All: MaxRates, Identity: int32(q.Identity.Rates)}}
	if copy(d.Hash[:], q.Secret[:]); !secret {
		_, _ = rand.Read(d.Hash[:]) // rand.Read never fails
	}
	of := rate{d.Path, d.Limit, d.Per}
	patience := time.NewTimer(max(q.Wait-time.Since(q.Arrived), 0))
	defer patience.Stop()
	own := &turn{make(chan struct{}, 1)}
	asked, waits := !secret, false
	for over := q.Wait == 0; ; {
		seen, a := s.lookAtRate(d, q)
		if a != nil || seen.Told {
			return s.drawn(q, seen, a)
		}
		pause := time.Duration(seen.Wait) * time.Millisecond
		first, free := s.goes(of, own, seen)
		// Decide by a log entry. This server's state may not show yet that another server has granted this very
		// draw.
		if free || over && !asked {
			asked = true
			seen, a = s.drawByEntry(ctx, q, d)
			if free {
				s.gone(of, own, waits && a == nil && !seen.OK)
			}
			if a != nil || seen.OK {
				return s.drawn(q, seen, a)
			}
			pause = time.Duration(seen.Wait) * time.Millisecond
		}
		if over {
			return s.drawn(q, window.Drawn{Wait: pause.Milliseconds()}, nil)
		}
		if !waits {
			w := &wait{identity: q.Identity.Name, wake: own.wake}
			if why := s.enter(w, q.Identity.Waits); why != "" {
				return fail(http.StatusTooManyRequests, "limit", "%s", why)
			}
			defer s.leave(w)
			s.standInLine(of, own)
			defer s.leaveLine(of, own)
			waits = true
			continue
		}
		if pause = min(max(pause, time.Millisecond), lookAgain); !first || seen.OK {
			pause = MaxWait
		}
		again := time.NewTimer(pause)
		select {
		case <-own.wake:
		case <-again.C:
		case <-patience.C:
			over = true
		case <-off:
			return unavailable(errAgain)
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
		again.Stop()
	}
}

// drawn() returns the answer to a request for a draw. `d` is the result of the draw; `a`, if not nil, is an
// answer that takes its place.
func (s *Server) drawn(q *Request, d window.Drawn, a *Answer) *Answer {
	if a == nil && (d.OK || d.Told) {
		s.draws.Add(1)
		return &Answer{Code: http.StatusOK, Body: &drawBody{1, true, d.At, d.Left, d.Told}}
	}
	if a != nil {
		return a
	}
	s.drawRefused.Add(1)
	a = fail(http.StatusTooManyRequests, "rate", "%d draws in %v: no further draw is free", q.Limit, q.Per)
	if d.Wait > 0 {
		a.Retry = time.Duration(d.Wait) * time.Millisecond
		body := a.Body.(*failure)
		body.Retry = d.Wait
		body.Text = fmt.Sprintf("%d draws in %v: the next draw is free in %v", q.Limit, q.Per, a.Retry)
	}
	return a
}

// lookAtRate tells how a draw would end now. `a`, if not nil, is the answer that refuses it.
func (s *Server) lookAtRate(d *state.Draw, q *Request) (seen window.Drawn, a *Answer) {
	nodes := 0 // how many nodes the draw makes: those of a new rate
	(*s.node.Load()).View(func(st *state.State) {
		data, there, code := rateData(st, q, jute.PermWrite)
		if !there {
			nodes = 1 + len(state.Missing(st.Tree(), q.Path))
		}
		if code == jute.OK {
			seen, code = d.Rate(data, s.o.Now().UnixMilli())
		}
		if code != jute.OK {
			a = rateRefusal(&state.Outcome{Code: code})
		}
	})
	q.seen++
	if nodes > 0 && a == nil {
		a = s.opens(&q.Identity, nodes)
	}
	return seen, a
}

// rateData returns the data of the rate's node, and whether there is such a node: a new rate has none. The
// code is NoAuth if the node exists and the caller has not the permission `perm`.
func rateData(st *state.State, q *Request, perm int32) (data string, there bool, code jute.ErrCode) {
	n, there := st.Tree().Find(q.Path)
	switch {
	case !there:
		return "", false, jute.OK
	case !n.May(q.IDs, perm):
		return "", true, jute.NoAuth
	case !state.MayBeRate(n):
		return "", true, jute.BadArguments
	}
	data, _ = n.Data(acl.Super)
	return data, true, jute.OK
}

type rateBody struct {
	V     int    `json:"v"`
	Limit int    `json:"limit,omitempty"`
	Per   int64  `json:"perMs,omitempty"`
	Used  int64  `json:"used"`
	Left  *int64 `json:"left,omitempty"`    // how many more draws the limit allows
	Retry *int64 `json:"retryMs,omitempty"` // in how many ms the next draw is possible; 0: now
}

// ShowRate returns how much of a rate is used, and draws nothing. The request gives the rate's time and
// limit. If it gives no time, the time of the rate's first draw is used. If it gives no limit, the answer
// does not say how many draws are left.
func (s *Server) ShowRate(q *Request) *Answer {
	if _, ok := s.serving(q); !ok {
		return unavailable(errAgain)
	}
	var u window.Use
	var a *Answer
	(*s.node.Load()).View(func(st *state.State) {
		data, _, code := rateData(st, q, jute.PermRead)
		if code == jute.OK {
			u, code = window.UseOf(data, int64(q.Limit), q.Per.Milliseconds(), s.o.Now().UnixMilli())
		}
		if code != jute.OK {
			a = rateRefusal(&state.Outcome{Code: code})
		}
	})
	if a != nil {
		return a
	}
	b := &rateBody{V: 1, Limit: q.Limit, Per: u.Per, Used: u.Used}
	if left := max(int64(q.Limit)-u.Used, 0); q.Limit > 0 {
		b.Left, b.Retry = &left, &u.Wait
	}
	return &Answer{Code: http.StatusOK, Body: b}
}

// drawByEntry sends a draw through the log, and returns what the state has decided about it.
func (s *Server) drawByEntry(ctx context.Context, q *Request, d *state.Draw) (window.Drawn, *Answer) {
	for range triesMost {
		out, err := s.do(ctx, d.Request(q.IDs))
		switch {
		case err != nil:
			s.audit("draw", q, resultUnsure)
			return window.Drawn{}, unavailable(err)
		case out.Code == jute.Unimplemented:
			if err := (*s.node.Load()).AllowTickets(ctx); err != nil {
				return window.Drawn{}, fail(http.StatusServiceUnavailable, "mixed-releases", "%v", err)
			}
			continue
		case out.Code != jute.OK:
			s.audit("draw", q, resultFailed)
			return window.Drawn{}, rateRefusal(&out)
		}
		got, err := window.ReadDrawn(out.Reply)
		if err != nil {
			return got, unavailable(err)
		}
		if got.OK && !got.Told {
			s.audit("draw", q, resultDone)
		}
		return got, nil
	}
	return window.Drawn{}, unavailable(errAgain)
}

// rateRefusal returns the answer for a draw that cannot be made.
func rateRefusal(out *state.Outcome) *Answer {
	switch out.Code {
	case jute.BadArguments:
		return fail(http.StatusConflict, "path", "the node of this path is not a rate: remove it, or draw "+
			"from another path")
	case jute.BadVersion:
		return fail(http.StatusConflict, "limit", "the period per= is longer than in the first draw from this "+
			"path, and draws are not kept that long: give a shorter per=, or remove the node")
	}
	return refusal(out)
}

// goes() returns whether a caller is the first in its line (`first`), and whether it may send its draw now
// (`free`). If `free` is true, goes() has taken the caller out of the line, and the caller must call gone()
// when the draw is decided. A caller that does not wait counts as the first if the line is empty.
func (s *Server) goes(of rate, t *turn, seen window.Drawn) (first, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[of]
	if l == nil {
		l = &line{}
	}
	first = len(l.waiting) == 0 || l.waiting[0] == t
	if free = first && seen.OK && seen.Left+1 > l.under; free {
		l.under++
		s.lines[of] = l
		s.takeOut(l, t)
	}
	return first, free
}

// gone() notes that a draw is decided. If `back` is true, it was refused, and its caller becomes the first in
// line again. Then gone() wakes no caller: this one knows how long to wait. On a server whose clock is ahead,
// a caller that wakes too early would send draw after draw.
func (s *Server) gone(of rate, t *turn, back bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[of]
	l.under--
	if back {
		l.waiting = slices.Insert(l.waiting, 0, t)
	} else {
		l.wakeFirst()
	}
	s.dropLine(of, l)
}

func (s *Server) standInLine(of rate, t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines[of] == nil {
		s.lines[of] = &line{}
	}
	s.lines[of].waiting = append(s.lines[of].waiting, t)
}

func (s *Server) leaveLine(of rate, t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[of]; l != nil {
		s.takeOut(l, t)
		s.dropLine(of, l)
	}
}

// takeOut removes a caller from a line and wakes the next caller. The caller of takeOut holds s.mu.
func (s *Server) takeOut(l *line, t *turn) {
	if at := slices.Index(l.waiting, t); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		if at == 0 {
			l.wakeFirst()
		}
	}
}

// dropLine removes a line that is empty. The caller holds s.mu.
func (s *Server) dropLine(of rate, l *line) {
	if len(l.waiting) == 0 && l.under == 0 {
		delete(s.lines, of)
	}
}

func (q *Request) drawParameter(name, value string, _ time.Duration) (err error) {
	switch name {
	case "limit":
		q.Limit, err = number(name, value, MaxLimit)
	case "per":
		q.Per, err = duration(name, value, MinPer, MaxPer)
	case "wait":
		q.Wait, err = duration(name, value, 0, MaxWait)
	default:
		err = fmt.Errorf("there is no parameter %.40q of a draw", name)
	}
	return err
}

// rate identifies a rate: a number of draws from a path in a number of ms.
type rate struct {
	path       string
	limit, per int64
}

// line holds the callers that wait at this server for a draw, in the order in which they came. Only the first
// sends draws through the log, so a thousand waiting callers write no more log entries than one.
type line struct {
	waiting []*turn
	under   int64 // how many draws are on their way through the log
}

type turn struct{ wake chan struct{} }

// wakeFirst makes the first caller in the line look again.
func (l *line) wakeFirst() {
	if len(l.waiting) > 0 {
		select {
		case l.waiting[0].wake <- struct{}{}:
		default:
		}
	}
}
