package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// A hold of some hours is announced once before it ends. A short hold or a waiting ticket is not announced.
func TestLongHoldsAreToldOfBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	i := must.Get(Start(ctx, Options{ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		TicketAddr: "127.0.0.1:0",
		Logger:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Now:        func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}))(t)
	defer func() { _ = i.Close(ctx) }()
	must.OK(t, i.Ready(ctx))
	take := func(secret, query string) {
		r := must.Get(http.NewRequest(http.MethodPost, "http://"+i.TicketAddr()+"/v1/locks"+query, nil))(t)
		r.Header.Set("Zlock-Ticket", strings.Repeat("abcdefghij", 2)+secret)
		resp := must.Get(http.DefaultClient.Do(r))(t)
		resp.Body.Close()
		must.That(t, resp.StatusCode < 300, "%s: %d", query, resp.StatusCode)
	}
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	take("until", "/until?ttl=10h&until="+at(2*time.Hour))
	take("waits", "/until?ttl=10h&until="+at(2*time.Hour))
	take("short", "/short?ttl=10h&until="+at(10*time.Minute))
	take("hours", "/hours?ttl=2h")
	told := i.lookForEnds(nil)
	expect.Equal(t, len(told), 0, "holds that are told of at first")
	ahead.Store(int64(106 * time.Minute))
	told = i.lookForEnds(told)
	expect.Equal(t, len(told), 1, "holds that are told of before their end")
	i.lookForEnds(told)
	expect.Equal(t, strings.Count(log.String(), "ends soon"), 1, "lines in %s", &log)
	expect.Has(t, log.String(), "path=/until identity=ip:127.0.0.1")
	node, list := i.Node(), []tickets.End(nil)
	w := wire.New(must.Get(net.Dial("tcp", i.ClientAddr()))(t))
	defer w.Close()
	must.OK(t, w.Connect(wire.NewSession(30_000)))
	asked := map[int64]bool{}
	left := func(id int64) (time.Duration, bool) { // the leader's answer: two hours are left
		asked[id] = true
		return tickets.RemindTime, true
	}
	node.View(func(st *state.State) { list = tickets.EndsSoon(st, left, i.o.Now()) })
	expect.That(t, !asked[w.Session.ID], "the leader is asked about a session without a ticket")
	expect.That(t, len(asked) == 3 || len(asked) == 4, // the short hold has ended, or is about to
		"the leader is asked about %d tickets", len(asked))
	paths := map[string]bool{}
	for _, e := range list {
		paths[e.Path] = true
	}
	for _, path := range []string{"/hours", "/until"} {
		expect.That(t, paths[path], "no %s among the holds whose callers were silent for long: %v", path, list)
	}
	for path, want := range map[string]string{"/health": "1 long holds of tickets end within 15m0s",
		"/metrics": "\nzlockd_ticket_holds_end_soon 1\n"} {
		resp := must.Get(http.Get("http://" + i.AdminAddr() + path))(t)
		text := must.Get(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
		expect.Has(t, string(text), want)
	}
}
