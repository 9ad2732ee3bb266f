package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// Our board, the public boards and the public alert rules name metrics. On a cluster whose servers have done
// some work, each of these metrics exists.
func TestEveryMetricOfTheBoardsExists(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, 3, slog.New(slog.DiscardHandler), func(o *Options) {
		o.AdminAddr = "127.0.0.1:0"
		o.BackupDir = t.TempDir()
		o.LogLost = func() int64 { return 0 }
		pair, _, _ := until(t, time.Now().Add(time.Hour))
		o.ClientTLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	})
	_, led := e.leader()
	handOff(t, led)
	holds(t, led)
	e.write(led, "/board", 3)

	exist := map[string]bool{"up": true} // Prometheus itself makes `up`
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]`)
	var pages []string
	for _, i := range e.servers {
		code, text := get(t, "http://"+i.AdminAddr()+"/metrics")
		must.Equal(t, code, http.StatusOK, "%s", text)
		pages = append(pages, text)
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			exist[m[1]] = true
		}
	}
	checkMetricsTable(t, pages)
	ours := must.Get(golden.Ours())(t)
	for _, q := range append(ours, golden.Public()...) {
		names := golden.Names(golden.Expand(q.Expr))
		for _, name := range names {
			expect.That(t, exist[name], "%s, %s: no server has %s", q.Board, q.Panel, name)
		}
		expect.That(t, len(names) != 0, "%s, %s asks for nothing", q.Board, q.Panel)
	}
}

// handOff takes a lock, lets another client wait for it, and releases it to that client.
func handOff(t *testing.T, i *Instance) {
	t.Helper()
	lock := func() (*client.Mutex, func()) {
		c := must.Get(client.Dial(t.Context(), i.ClientAddr()))(t)
		return c.Mutex("/app/lock"), func() { must.OK(t, c.Close(t.Context())) }
	}
	first, closeFirst := lock()
	second, closeSecond := lock()
	held := must.Get(first.Lock(t.Context()))(t)
	got := make(chan error, 1)
	go func() {
		l, err := second.Lock(t.Context())
		if err == nil {
			err = l.Unlock(t.Context())
		}
		got <- err
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		i.Clients.WatchScan(func(path string, _ int64) bool {
			waits = waits || strings.HasPrefix(path, "/app/lock/")
			return !waits
		})
	}
	must.OK(t, held.Unlock(t.Context()))
	must.OK(t, <-got)
	closeFirst()
	closeSecond()
}

// holds() takes a lock and keeps it until the test ends.
func holds(t *testing.T, i *Instance) {
	t.Helper()
	c := must.Get(client.Dial(t.Context(), i.ClientAddr()))(t)
	t.Cleanup(func() { c.Close(context.Background()) })
	must.Get(c.Mutex("/held/lock").Lock(t.Context()))(t)
}
