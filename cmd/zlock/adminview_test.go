package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
	zlockd "github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// viewed() starts a server with an admin port and two clients that block each other. One client holds /app/a
// and waits for /app/b. The other client holds /app/b and waits for /app/a.
func viewed(t *testing.T) (env map[string]string, auth string, holder *client.Client) {
	t.Helper()
	const super = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // the hash of super:test
	i := must.Get(zlockd.Start(t.Context(), zlockd.Options{
		ClientAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		SuperDigest: super,
	}))(t)
	t.Cleanup(func() { i.Close(context.Background()) })
	must.OK(t, i.Ready(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	dial := func() *client.Client {
		c := must.Get(client.Dial(ctx, i.ClientAddr()))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	one, two := dial(), dial()
	tasks := map[*client.Client]context.Context{one: client.Task(ctx, "one"), two: client.Task(ctx, "two")}
	for _, h := range []struct {
		c    *client.Client
		path string
	}{{one, "/app/a"}, {two, "/app/b"}} {
		must.Get(h.c.Mutex(h.path).Lock(tasks[h.c], client.WithReason("nightly")))(t)
	}
	for _, w := range []struct {
		c    *client.Client
		path string
	}{{one, "/app/b"}, {two, "/app/a"}} {
		go w.c.Mutex(w.path).Lock(tasks[w.c])
	}
	env = map[string]string{"ZLOCK_ADMIN": i.AdminAddr(), "ZLOCK_SERVERS": i.ClientAddr()}
	auth = filepath.Join(t.TempDir(), "auth")
	must.OK(t, os.WriteFile(auth, []byte("digest:bob:test\ndigest:super:test\ndigest:ann:test\n"), 0o600))
	var out, errs string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var code int
		if out, errs, code = runIn(t, env, "wait-graph", "--server", "-o", "plain"); code == call.ExitCycle {
			return env, auth, one
		}
	}
	t.Fatalf("no cycle: %s%s", out, errs)
	return
}

func TestCommandsThatAskTheAdminListener(t *testing.T) {
	env, auth, holder := viewed(t)
	mine := recipe.Session(holder.Session().ID).String()
	run := func(code int, args ...string) string {
		t.Helper()
		out, errs, got := runIn(t, env, args...)
		if got != code {
			t.Fatalf("%v: exit %d\n%s%s", args, got, out, errs)
		}
		return out + errs
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			expect.Has(t, text, w, "is missing in")
		}
	}
	// zlock prints the same locks whether it asks the server (--server) or reads the nodes.
	for _, args := range [][]string{{"ls", "-R", "-o", "plain"}, {"ls", "/app", "-o", "plain"},
		{"ls", "/", "-o", "plain"}, {"ls", "-o", "plain", "--chroot", "/app"}} {
		cut := func(s string) (first []string) {
			for line := range strings.Lines(s) {
				f := strings.Split(line, "\t")
				first = append(first, strings.Join(f[:4], " ")) // the first four columns, without the time
			}
			return first
		}
		if a, b := cut(run(0, args...)), cut(run(0, append(args, "--server")...)); strings.Join(a,
			"\n") != strings.Join(b, "\n") {
			t.Errorf("%v: %q, and by the server %q", args, a, b)
		}
	}
	for _, args := range [][]string{{"show", "/app/a", "-o", "plain"}, {"holders", "/app/a", "-o", "plain"},
		{"waiters", "/app/b", "-o", "json"}, {"show", "/a", "-o", "json", "--chroot", "/app"},
		{"wait-graph", "/a", "-o", "json", "--chroot", "/app"}} {
		a, b := run(0, args...), run(0, append(args, "--server")...)
		expect.Equal(t, a, b)
		expect.That(t, a != "", "%v:\n%s, and by the server\n%s", args, a, b)
	}
	has(run(call.ExitCycle, "wait-graph", "--server"), "cycle", "/app/a", "/app/b")
	has(run(0, "ls", "/none", "--server"), "no locks at /none")
	has(run(0, "ls", "--held", "/none"), "no locks that are held")
	has(run(call.ExitNo, "show", "/none", "--server"), "there is no node /none")

	has(run(0, "sessions"), "SESSION", mine, "127.0.0.1")
	has(run(0, "sessions", "-o", "json"), `"id":"`+mine+`"`, `"connection":{`)
	has(run(0, "sessions", "--limit", "1"), "1 of 2 sessions are shown")
	has(run(0, "sessions", mine), "SESSION  "+mine, "holds  /app/a  exclusive", "waits  /app/b  exclusive")
	has(run(call.ExitNo, "sessions", "0x123"), "there is no session 0x123")
	has(run(0, "top"), "LAST", "client", "127.0.0.1")
	has(run(0, "top", "--by", "watches", "-o", "plain"), "watched\t/app/")

	has(run(call.ExitNo, "end-session", mine, "--yes"), "password")
	has(run(0, "end-session", mine, "--auth-file", auth), "would end session "+mine, "loses /app/a",
		"nothing was done")
	has(run(0, "sessions", mine), "holds")
	has(run(0, "end-session", mine, "--yes", "--auth-file", auth), "did: end session "+mine)
	has(run(call.ExitNo, "sessions", mine), " ended ")
	has(run(0, "sessions", "--ended"), mine, "operator", "ended by an operator")
	has(run(call.ExitFailed, "sessions", mine, "--ended"), "leave out the ID")
}

// Without an admin listener zlock shows what it reads from the nodes, and says which information is missing.
func TestWithoutAnAdminListener(t *testing.T) {
	env := map[string]string{"ZLOCK_ADMIN": "127.0.0.1:1", "ZLOCK_SERVERS": server(t)}
	_, errs, code := runIn(t, env, "ls", "/no/such/place", "--server")
	expect.Equal(t, code, 0, "exit code; it says %s", errs)
	expect.Has(t, errs, "reading node by node", "standard error")
	_, errs, code = runIn(t, env, "holders", "/no/such/place", "--server", "-q")
	expect.Equal(t, code, call.ExitNo, "-q: exit code; it says %s", errs)
	expect.Equal(t, errs, "", "-q: standard error")
	_, errs, code = runIn(t, env, "sessions")
	expect.Equal(t, code, call.ExitNoSession, "exit code; it says %s", errs)
	expect.Has(t, errs, "no answer from the admin listener", "standard error")
}
