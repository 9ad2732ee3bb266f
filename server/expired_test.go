package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A session that falls silent leaves one line: who, for how long, and what it
// had.
func TestExpiredSessionIsLogged(t *testing.T) {
	var log lines
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Clients: clients.Options{MinSessionTimeout: 200 * time.Millisecond, MaxSessionTimeout: time.Minute}})
	c := must.Get(wire.Dial(i.ClientAddr()))(t)
	defer c.Close()
	must.OK(t, c.Connect(wire.NewSession(200)))
	create(t, c, "/lock", 0)
	create(t, c, "/lock/_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-", jute.FlagEphemeralSequential)
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), "session expired"); time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no line:\n%s", log.String())
		}
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "session expired") {
			continue
		}
		for _, want := range []string{"level=INFO", "addr=127.0.0.1", "on=1", "timeout=200ms", "nodes=1", "silent=",
			"library=curator", "held=[/lock]"} {
			expect.Has(t, line, want, "is missing")
		}
	}
	expect.Equal(t, strings.Count(log.String(), "session expired"), 1, "lines")
}

// What a server reads in its log when it starts has happened before: it is told
// with the time at which it did, and not as news.
func TestExpiredSessionIsNoNewsAfterARestart(t *testing.T) {
	var log lines
	o := Options{AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Raft:    raftfsm.Options{DataDir: t.TempDir()},
		Clients: clients.Options{MinSessionTimeout: 200 * time.Millisecond, MaxSessionTimeout: time.Minute}}
	o.ClientAddr = "127.0.0.1:0"
	run := func() *Instance {
		i := must.Get(Start(t.Context(), o))(t)
		must.OK(t, i.Ready(t.Context()))
		return i
	}
	i := run()
	c := must.Get(wire.Dial(i.ClientAddr()))(t)
	must.OK(t, c.Connect(wire.NewSession(200)))
	must.OK(t, c.Close())
	for len(i.Clients.Observed.EndedSince(-1)) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	before := i.Clients.Observed.EndedSince(-1)[0]
	for !strings.Contains(log.String(), "session expired") {
		time.Sleep(5 * time.Millisecond)
	}
	must.OK(t, i.Close(context.Background()))

	i = run()
	defer i.Close(context.Background())
	if list := i.Clients.Observed.EndedSince(-1); len(list) != 1 || !list[0].Time.Equal(before.Time) {
		t.Fatalf("%+v, before the restart %+v", list, before)
	}
	// One that expires now is told of after all that was before.
	c = must.Get(wire.Dial(i.ClientAddr()))(t)
	must.OK(t, c.Connect(wire.NewSession(200)))
	must.OK(t, c.Close())
	id := fmt.Sprintf("session=%#x", c.Session.ID)
	for !strings.Contains(log.String(), id) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := strings.Count(log.String(), "session expired"); n != 2 {
		t.Errorf("%d lines for two sessions:\n%s", n, log.String())
	}
}
