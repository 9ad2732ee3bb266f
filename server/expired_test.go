package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// If a session expires, the log gets one line. The line names the client, and says how long the client was
// silent and what the session had.
func TestExpiredSessionIsLogged(t *testing.T) {
	t.Parallel()
	var log must.Text
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: time.Minute}) // long enough for three requests on a busy machine
	c := must.Get(wire.Dial(i.ClientAddr()))(t)
	defer c.Close()
	must.OK(t, c.Connect(wire.NewSession(2000)))
	create(t, c, "/lock", 0)
	create(t, c, "/lock/_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-", jute.FlagEphemeralSequential)
	log.Await(t, "session expired")
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "session expired") {
			continue
		}
		for _, want := range []string{"level=INFO", "addr=127.0.0.1", "on=1", "timeout=2s", "nodes=1", "silent=",
			"paths=[/lock/_c_0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01-lock-0000000000]"} {
			expect.Has(t, line, want, "is missing")
		}
	}
	expect.Equal(t, strings.Count(log.String(), "session expired"), 1, "lines")
}

// A server that starts again reads in its log that a session has ended. It lists this end with its original
// time, and does not log it a second time.
func TestExpiredSessionIsNoNewsAfterARestart(t *testing.T) {
	t.Parallel()
	var log must.Text
	o := Options{AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		DataDir:           t.TempDir(),
		MinSessionTimeout: 200 * time.Millisecond, MaxSessionTimeout: time.Minute}
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
	for len(i.Clients.Observed().EndedSince(-1)) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	before := i.Clients.Observed().EndedSince(-1)[0]
	for !strings.Contains(log.String(), "session expired") {
		time.Sleep(5 * time.Millisecond)
	}
	must.OK(t, i.Close(context.Background()))

	i = run()
	defer i.Close(context.Background())
	list := i.Clients.Observed().EndedSince(-1)
	must.Equal(t, len(list), 1, "length of %v", list)
	must.That(t, list[0].Time.Equal(before.Time), "%+v, before the restart %+v", list, before)
	// A session that expires now is listed after the sessions that expired before the restart.
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

// complaints keeps the lines above INFO.
type complaints struct {
	slog.Handler
	mu      *sync.Mutex
	list    *[]string
	machine *bool      // the machine stood still
	looked  *time.Time // when look() last read the clock
}

func newComplaints() complaints {
	now := time.Now()
	return complaints{slog.DiscardHandler, new(sync.Mutex), new([]string), new(bool), &now}
}

// Call look() often: a long time between two calls counts as a sign that the machine stood still.
func (c complaints) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.machine = *c.machine || time.Since(*c.looked) > 500*time.Millisecond
	*c.looked = time.Now()
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

// none() fails the test if there were lines, unless the machine stood still: then a server may rightly
// complain.
func (c complaints) none(t *testing.T, when string) {
	t.Helper()
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.machine = *c.machine || slices.ContainsFunc(*c.list, func(line string) bool {
		return strings.Contains(line, "this server was stalled") || strings.Contains(line, "storage is slow")
	})
	for _, line := range *c.list {
		expect.That(t, *c.machine, "%s: %s", when, line)
	}
	*c.list = nil
}

// A clean start and a clean stop log no warning, in each mode.
func TestCleanStartAndStopWarnOfNothing(t *testing.T) {
	t.Parallel()
	for range 10 {
		c := newComplaints()
		if startAndStop(t, c); !*c.machine {
			return
		}
	}
	t.Skip("the machine stands still again and again")
}

func startAndStop(t *testing.T, c complaints) {
	over := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for tick := time.Tick(20 * time.Millisecond); ; c.look() {
			select {
			case <-over:
				return
			case <-tick:
			}
		}
	})
	defer func() { close(over); looks.Wait() }()
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
	run("single", Options{DataDir: dir})
	run("restarted", Options{DataDir: dir})

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

// The trace page records a server's work, with a mark for each step of a request, for the super user only.
func TestTracePageRecordsTheStepsOfRequests(t *testing.T) { // not parallel: a process has only one recorder
	i, c := start(t, Options{AdminAddr: "127.0.0.1:0", SuperDigest: superDigest})
	ask := func(query, login string) (int, string) {
		req, err := http.NewRequest("GET", "http://"+i.AdminAddr()+"/debug/trace"+query, nil)
		if err != nil {
			return 0, err.Error()
		}
		if login != "" {
			req.Header.Set("Authorization", login)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		file := resp.Header.Get("Content-Type") == "application/octet-stream" &&
			resp.Header.Get("Content-Disposition") == `attachment; filename="zlockd.trace"`
		expect.Equal(t, file, resp.StatusCode == http.StatusOK, "%v", resp.Header)
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(b)
	}
	const super = "digest super:test"
	for _, bad := range []struct {
		query, login string
		code         int
		says         string
	}{
		{"", "", 401, "Auth info"}, {"", "digest super:wrong", 403, "Not authorized"},
		{"?wait=1h", super, 400, "is not a duration"},
	} {
		code, text := ask(bad.query, bad.login)
		expect.Equal(t, code, bad.code, "%q as %q: exit code", bad.query, bad.login)
		expect.Has(t, text, bad.says, "%q as %q: text", bad.query, bad.login)
	}
	n := 0
	// trace records what the server does while it creates nodes.
	trace := func() string {
		got := make(chan string, 1)
		go func() {
			code, text := ask("?wait=200ms", super)
			expect.Equal(t, code, http.StatusOK, "%d %s", code, text)
			got <- text
		}()
		for {
			create(t, c, fmt.Sprintf("/traced-%d", n), 0)
			n++
			select {
			case text := <-got:
				return text
			default:
			}
		}
	}
	for _, step := range []string{"queued for the leader", "leave the queue as one block",
		"is given to raft", "is in the log", "is applied"} {
		await(t, "a trace with a step "+step, func() bool { // a busy machine may do nothing in 200 ms
			return strings.Contains(trace(), step)
		})
	}
}

func TestTraceIsOffWithoutASuperUser(t *testing.T) {
	t.Parallel()
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0"})
	resp := must.Get(http.Get("http://" + i.AdminAddr() + "/debug/trace"))(t)
	defer resp.Body.Close()
	expect.Equal(t, resp.StatusCode, http.StatusForbidden, "%v", resp.Status)
}
