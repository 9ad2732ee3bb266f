package tickets_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/test/expect"
)

// The type loses is a node that carries out requests. While `lost` is set, it does not tell their outcomes.
type loses struct {
	*beforeEnds
	lost atomic.Bool
}

func (n *loses) Propose(r state.Request, w state.Waiter) error {
	if n.lost.Load() {
		w = noWord{w}
	}
	return n.beforeEnds.Propose(r, w)
}

// noWord is a waiter that is told that the outcome is not known.
type noWord struct{ state.Waiter }

func (w noWord) Done(*state.Outcome, *state.State) { w.Waiter.Done(&state.Outcome{Unknown: true}, nil) }

// The audit log has a line for a ticket or draw whose outcome is not known. A repetition of the request finds
// that the first request was carried out, and adds no line.
func TestUnknownOutcomesAreAudited(t *testing.T) {
	_, node := startNode(t)
	n := &loses{beforeEnds: node}
	var lines []string
	s := tickets.New(tickets.Options{ID: 1, Max: time.Hour, Now: time.Now,
		Audit: func(operation string, _ []jute.ID, _, path, result string) {
			lines = append(lines, operation+" "+path+" "+result)
		}})
	s.Use(n)
	s.Serving(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	step := func(what string, lost bool, code int, want string, do func() *tickets.Answer) {
		t.Helper()
		lines = nil
		n.lost.Store(lost)
		expect.Equal(t, do().Code, code, "%s: code", what)
		var all []string
		if want != "" {
			all = []string{want}
		}
		expect.List(t, lines, all, "%s: lines", what)
	}
	take := func() *tickets.Answer { return s.Take(ctx, request(1, "/l", exclusive)) }
	give := func() *tickets.Answer { return s.Give(ctx, request(1, "/l", exclusive)) }
	draw := func() *tickets.Answer {
		q := request(2, "/r", 0)
		q.Draws, q.Per, q.Limit, q.Rates = true, time.Hour, 5, 10
		return s.Draw(ctx, q, true)
	}
	step("take, lost", true, http.StatusServiceUnavailable, "openTicket /l invoked", take)
	step("take again", false, http.StatusOK, "", take)
	step("give, lost", true, http.StatusServiceUnavailable, "endTicket /l invoked", give)
	step("give again", false, http.StatusGone, "", give)
	step("draw, lost", true, http.StatusServiceUnavailable, "draw /r invoked", draw)
	step("draw again", false, http.StatusOK, "", draw)
}

// Each request with a token that no identity has is a line of the audit log, even if the caller does not wait
// for the delayed answer. A request without a token is no login.
func TestWrongTokensAreAudited(t *testing.T) {
	var lines []string
	s := tickets.New(tickets.Options{ID: 1, Max: time.Hour, Now: time.Now, Tokens: &tickets.Tokens{},
		Audit: func(operation string, ids []jute.ID, ip, path, result string) {
			lines = append(lines, operation+" "+ids[0].ID+" "+ip+" "+path+" "+result)
		}})
	ask := func(header string, code int, want ...string) {
		t.Helper()
		lines = nil
		left, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(left, http.MethodPost, "/v1/locks/a", http.NoBody)
		r.RemoteAddr = "192.0.2.7:99"
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		expect.Equal(t, w.Code, code, "%q: code", header)
		expect.List(t, lines, want, "%q: lines", header)
	}
	ask("Bearer wrong", http.StatusUnauthorized, "login 192.0.2.7 192.0.2.7  failure")
	ask("Basic eDp5", http.StatusUnauthorized, "login 192.0.2.7 192.0.2.7  failure")
	ask("", http.StatusUnauthorized)
}
