package server

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/test/must"
)

// complaints keeps what is logged above INFO.
type complaints struct {
	slog.Handler
	mu   *sync.Mutex
	list *[]string
}

func newComplaints() complaints {
	return complaints{slog.DiscardHandler, new(sync.Mutex), new([]string)}
}

// Enabled implements slog.Handler.
func (c complaints) Enabled(_ context.Context, l slog.Level) bool { return l > slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

// Handle implements slog.Handler.
func (c complaints) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.list = append(*c.list, line)
	return nil
}

// none fails the test if there were any.
func (c complaints) none(t *testing.T, when string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range *c.list {
		t.Errorf("%s: %s", when, line)
	}
	*c.list = nil
}

// A clean start and a clean stop warn of nothing, in no mode.
func TestCleanStartAndStopWarnOfNothing(t *testing.T) {
	c := newComplaints()
	log := slog.New(c)
	run := func(name string, o Options) {
		t.Helper()
		o.ClientAddr, o.AdminAddr, o.Logger = "127.0.0.1:0", "127.0.0.1:0", log
		i := must.Get(Start(t.Context(), o))(t)
		must.OK(t, i.Ready(t.Context()))
		(&ensemble{t: t}).write(i, "/"+name, 3)
		must.OK(t, i.Close(context.Background()))
		c.none(t, name)
	}
	run("memory", Options{})
	dir := t.TempDir()
	run("single", Options{Raft: raftfsm.Options{DataDir: dir}})
	run("restarted", Options{Raft: raftfsm.Options{DataDir: dir}})

	for _, n := range []int{3, 5} {
		if n == 5 && testing.Short() {
			continue
		}
		e := newEnsemble(t, n, log)
		_, led := e.leader()
		e.write(led, "/a", 3)
		c.none(t, "start of several")
		for id := range e.peers { // a rolling restart
			must.OK(t, e.servers[id].Close(context.Background()))
			delete(e.servers, id)
			e.leader()
			e.restart(id)
		}
		c.none(t, "rolling restart")
		var wg sync.WaitGroup
		for _, i := range e.servers {
			wg.Go(func() { i.Close(context.Background()) })
		}
		wg.Wait()
		clear(e.servers)
		c.none(t, "stop of all")
	}
}
